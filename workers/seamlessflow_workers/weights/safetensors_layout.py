"""The head of a safetensors file, which says what follows it: so a file can be written before all its bytes are known.

Takes layouts in the order of their bytes; returns the bytes before the first tensor. The format is that of the
safetensors library: 8 bytes with the length of a JSON object, then the object.
"""

from collections.abc import Mapping

import msgspec

from seamlessflow_workers.weights.tensors import TensorLayout

_METADATA = "__metadata__"
_LENGTH_BYTES = 8


def safetensors_head(layouts: Mapping[str, TensorLayout], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the head of a file that has these tensors one after the other, without gaps."""
    header: dict[str, object] = {} if metadata is None else {_METADATA: dict(metadata)}
    offset = 0
    for name, layout in layouts.items():
        end = offset + layout.num_bytes
        header[name] = {"dtype": layout.dtype, "shape": list(layout.shape), "data_offsets": [offset, end]}
        offset = end
    raw = msgspec.json.encode(header)
    raw += b" " * (-len(raw) % _LENGTH_BYTES)  # the data starts aligned
    return len(raw).to_bytes(_LENGTH_BYTES, "little") + raw
