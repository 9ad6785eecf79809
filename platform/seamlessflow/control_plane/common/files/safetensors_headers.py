"""Reads headers of safetensors files: what a file holds and where, without reading weights or importing a framework."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.control_plane.common.files.json_files import JsonBounds, json_text_read

LENGTH_BYTES = 8
# A header has some hundred bytes for each tensor: a mixture of experts with 100,000 of them has 15 MB.
HEADER_BOUNDS = JsonBounds(max_bytes=32 * 1024**2, max_values=2_000_000)


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
    """Return the tensors of a file in their order. Raises OSError, or ValueError for a file of another kind."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        if not 0 < length <= HEADER_BOUNDS.max_bytes:
            raise ValueError(f"it has no safetensors header of at most {HEADER_BOUNDS.max_bytes} bytes")
        header = json_text_read(stream.read(length), HEADER_BOUNDS)
    if not isinstance(header, dict):
        raise ValueError("its safetensors header is not a mapping")
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
