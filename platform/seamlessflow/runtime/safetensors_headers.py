"""Reads headers of safetensors files: the tensors of a file and their positions, without reading weights or importing a
framework.

Takes a file; returns its tensors in their order. Invariant: each tensor that is returned lies in the file, tensor after
tensor without gaps, each with as many bytes as its shape and number format need, as the safetensors library demands it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from seamlessflow.runtime.json_files import InvalidJsonFile, JsonBounds, json_text_read

LENGTH_BYTES = 8
# A header has some hundred bytes for each tensor: a mixture of experts with 100,000 of them has 15 MB.
HEADER_BOUNDS = JsonBounds(max_bytes=32 * 1024**2, max_values=2_000_000)
NUM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class InvalidHeader(ValueError):
    """The file is no safetensors file, or its header does not describe its bytes."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: contiguous little-endian bytes."""

    name: str
    dtype: str  # in the words of safetensors: F32, BF16
    shape: tuple[int, ...]
    file: Path
    start: int  # in the file
    num_bytes: int


def header_read(file: Path) -> list[StoredTensor]:
    """Return the tensors of a file in their order. Raises OSError, or InvalidHeader for a file of another kind."""
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if not 0 < length <= HEADER_BOUNDS.max_bytes:
            raise InvalidHeader(f"it has no safetensors header of 1 to {HEADER_BOUNDS.max_bytes} bytes")
        if LENGTH_BYTES + length > size:
            raise InvalidHeader(f"its header should have {length} bytes, but the file has {size}")
        try:
            header = json_text_read(stream.read(length), HEADER_BOUNDS)
        except InvalidJsonFile as error:
            raise InvalidHeader(f"its safetensors header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise InvalidHeader("its safetensors header is not a mapping")
    _metadata_check(header.pop("__metadata__", {}))
    tensors = [_tensor(name, entry, file, data=LENGTH_BYTES + length) for name, entry in header.items()]
    # An empty tensor begins where the next one does.
    tensors.sort(key=lambda tensor: (tensor.start, tensor.num_bytes))
    _order_check(tensors, LENGTH_BYTES + length, size)
    return tensors


def _metadata_check(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidHeader("the __metadata__ of its header is not a mapping from texts to texts")


def _tensor(name: str, entry: object, file: Path, *, data: int) -> StoredTensor:
    lacking = {"dtype", "shape", "data_offsets"} - (entry.keys() if isinstance(entry, dict) else set())
    if lacking:
        raise InvalidHeader(f"its safetensors header lacks {', '.join(sorted(lacking))} of {name!r}")
    assert isinstance(entry, dict)
    dtype, shape = _format(name, entry), _sizes(name, "shape", entry)
    offsets = _sizes(name, "data_offsets", entry)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise InvalidHeader(f"data_offsets of {name!r} are {list(offsets)}; accepted: [begin, end]")
    num_bits, num_bytes = prod(shape) * NUM_BITS[dtype], offsets[1] - offsets[0]
    if num_bits != 8 * num_bytes:
        raise InvalidHeader(
            f"{name!r} has {num_bytes} bytes by its data_offsets, but {num_bits / 8:g} by its shape "
            f"{list(shape)} and its dtype {dtype}"
        )
    return StoredTensor(
        name=name, dtype=dtype, shape=shape, file=file, start=data + offsets[0], num_bytes=num_bytes
    )


def _format(name: str, entry: Mapping[str, Any]) -> str:
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in NUM_BITS:
        raise InvalidHeader(f"dtype of {name!r} is {dtype!r}; accepted: {', '.join(NUM_BITS)}")
    return dtype


def _sizes(name: str, field: str, entry: Mapping[str, Any]) -> tuple[int, ...]:
    sizes = entry[field]
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise InvalidHeader(f"{field} of {name!r} is {sizes!r}; accepted: whole numbers from 0 on")
    return tuple(sizes)


def _order_check(tensors: Sequence[StoredTensor], start: int, size: int) -> None:
    for tensor in tensors:
        if tensor.start != start:
            relation = "overlaps" if tensor.start < start else "leaves a gap behind"
            raise InvalidHeader(f"{tensor.name!r} {relation} the tensor before it")
        start += tensor.num_bytes
    if start != size:
        raise InvalidHeader(f"its tensors end at byte {start}, but the file has {size} bytes")
