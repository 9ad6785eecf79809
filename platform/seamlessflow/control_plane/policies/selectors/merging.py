"""Weights in numpy: number formats of safetensors, and an adapter's change of one weight.

As engines compute it (`rollout/weights`): the base rounded to the job's format, the sum in float32, rounded
once. numpy knows no bfloat16: it is the upper half of a float32, rounded to the nearest even one.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
NUM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_PLAIN: dict[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def to_floats(raw: bytes, dtype: str) -> Floats:
    """Return the numbers as float32. Raises KeyError for a format that is not floating."""
    if dtype == "BF16":
        return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, dtype=np.dtype(_PLAIN[dtype])).astype(np.float32)


def from_floats(values: Floats, dtype: str) -> bytes:
    """Return the bytes of finite numbers; a NaN would not survive the rounding to bfloat16."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return values.astype(np.dtype(_PLAIN[dtype])).tobytes()


def merged(base: Floats, down: Floats, up: Floats, *, scale: float, dtype: str) -> Floats:
    """Return base [outputs, inputs] + scale · up [outputs, rank] · down [rank, inputs]."""
    rounded = to_floats(from_floats(base, dtype), dtype).reshape(base.shape)
    return rounded + np.float32(scale) * (up @ down)
