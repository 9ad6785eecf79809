"""Headers of safetensors files: what is in a file and where, without reading a weight and without a framework."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100 * 1024**2  # what safetensors itself accepts


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in a file: contiguous little-endian bytes."""

    name: str
    dtype: str  # in the words of safetensors: F32, BF16
    shape: tuple[int, ...]
    file: Path
    start: int  # in the file
    num_bytes: int


def header_read(file: Path) -> list[StoredTensor]:
    """The tensors of a file, in their order there. Raises OSError, or ValueError for a file of another kind."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if not 0 < length <= MAX_HEADER_BYTES:
            raise ValueError("it has no safetensors header")
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise ValueError("its safetensors header is no mapping")
    header.pop("__metadata__", None)
    try:
        tensors = [_tensor(name, entry, file, data=LENGTH_BYTES + length) for name, entry in header.items()]
    except (KeyError, TypeError) as error:
        raise ValueError(f"its safetensors header lacks {error}") from error
    return sorted(tensors, key=lambda tensor: tensor.start)


def _tensor(name: str, entry: dict[str, Any], file: Path, *, data: int) -> StoredTensor:
    start, end = (int(offset) for offset in entry["data_offsets"])
    return StoredTensor(
        name=name,
        dtype=str(entry["dtype"]),
        shape=tuple(int(size) for size in entry["shape"]),
        file=file,
        start=data + start,
        num_bytes=end - start,
    )
