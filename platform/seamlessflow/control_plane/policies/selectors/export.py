"""Turns a stored version and its model folder into the tar members of a folder that transformers or peft loads.

`model`: whole weights in the job's number format with the model folder's configuration and tokenizer, and with what the
folder has beside the model that was trained; an adapter is merged while it is sent, one tensor at a time. `adapter`:
peft's own files, as published. Nothing executable is exported: only safetensors, JSON and text files of the model
folder.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from seamlessflow.control_plane.common.files.tar_stream import Member
from seamlessflow.control_plane.policies.selectors.merging import NUM_BYTES, from_floats, merged, to_floats
from seamlessflow.runtime.safetensors_headers import StoredTensor, header_read

CONFIG_NAME = "config.json"
ADAPTER_CONFIG_NAME = "adapter_config.json"
ADAPTER_NAME = "adapter_model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
CHUNK_BYTES = 4 * 1024**2
FORMATS = {"float32": "F32", "bfloat16": "BF16"}  # of the job spec, in the words of safetensors
_COMPANIONS = frozenset({".json", ".jinja", ".txt", ".model", ".tiktoken"})
_PREFIX = "base_model.model."
_NEVER_ROUNDED = (
    ".e_score_correction_bias"  # by which a router chooses experts, in float32 whatever the job's format
)


class ExportForm(StrEnum):
    MODEL = "model"
    ADAPTER = "adapter"


class NothingToExport(ValueError):
    """The version cannot be exported in this form; the message says why."""


def export_members(version: Path, model: Path, *, form: ExportForm, dtype: str) -> list[Member]:
    """Return the tar's members. `version`: its folder, or the model folder for version 0. `dtype`: the job spec's.

    Raises NothingToExport; OSError and ValueError for files that are missing or of another kind.
    """
    is_adapter = (version / ADAPTER_CONFIG_NAME).is_file()
    if form is ExportForm.ADAPTER:
        if not is_adapter:
            raise NothingToExport("the version is not an adapter; accepted: form=model")
        return [_copied(version / name, name) for name in (ADAPTER_CONFIG_NAME, ADAPTER_NAME)]
    shards = _merged_shards(version, model, FORMATS[dtype]) if is_adapter else _whole_shards(version, model)
    return [*_companions(model, dtype), *_weights(shards)]


Chunks = Callable[[], Iterable[bytes | memoryview]]
Shard = list[tuple[StoredTensor, Chunks]]  # tensors as they will lie in the exported file, and their bytes


def _whole_shards(version: Path, model: Path) -> list[Shard]:
    """Return the version's files and, as they are, the tensors that only the model folder has.

    Those belong to layers that predict further tokens, which are neither trained nor published.
    """
    shards = _own_shards(version)
    published = {tensor.name for shard in shards for tensor, _ in shard}
    rest = [pair for shard in _own_shards(model) for pair in shard if pair[0].name not in published]
    return [*shards, rest] if rest else shards


def _own_shards(folder: Path) -> list[Shard]:
    return [[(tensor, partial(_stored, tensor)) for tensor in header_read(file)] for file in _files(folder)]


def _merged_shards(version: Path, model: Path, dtype: str) -> list[Shard]:
    """Return the files of the model folder, with each weight merged and in `dtype`."""
    config = json.loads((version / ADAPTER_CONFIG_NAME).read_text())
    scale = float(config["lora_alpha"]) / int(config["r"])
    changes = {tensor.name: tensor for tensor in header_read(version / ADAPTER_NAME)}
    shards = []
    for file in _files(model):
        shard: Shard = []
        for base in header_read(file):
            module = f"{_PREFIX}{base.name.removesuffix('.weight')}"
            down, up = (changes.pop(f"{module}.lora_{side}.weight", None) for side in "AB")
            if base.dtype not in NUM_BYTES or base.name.endswith(_NEVER_ROUNDED):
                shard.append((base, partial(_stored, base)))
                continue
            shard.append((_in_format(base, dtype), partial(_computed, base, down, up, scale, dtype)))
        shards.append(shard)
    if changes:
        raise ValueError(f"the adapter changes {min(changes)}, which the model folder lacks")
    return shards


def _in_format(tensor: StoredTensor, dtype: str) -> StoredTensor:
    num_bytes = tensor.num_bytes // NUM_BYTES[tensor.dtype] * NUM_BYTES[dtype]
    return StoredTensor(tensor.name, dtype, tensor.shape, tensor.file, tensor.start, num_bytes)


def _computed(
    base: StoredTensor, down: StoredTensor | None, up: StoredTensor | None, scale: float, dtype: str
) -> Iterator[bytes]:
    values = to_floats(_whole(base), base.dtype).reshape(base.shape)
    if down is not None and up is not None:
        a, b = (to_floats(_whole(matrix), matrix.dtype).reshape(matrix.shape) for matrix in (down, up))
        values = merged(values, a, b, scale=scale, dtype=dtype)
    yield from_floats(values, dtype)


def _weights(shards: list[Shard]) -> Iterator[Member]:
    """Return the files under the names that transformers expects, with an index if there are several."""
    count = len(shards)
    names = (
        ["model.safetensors"]
        if count == 1
        else [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    )
    for name, shard in zip(names, shards, strict=True):
        header = _header([tensor for tensor, _ in shard])
        num_bytes = len(header) + sum(tensor.num_bytes for tensor, _ in shard)
        yield Member(name, num_bytes, partial(_file, header, shard))
    if count > 1:
        placed = {tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor, _ in shard}
        total = sum(tensor.num_bytes for shard in shards for tensor, _ in shard)
        yield _json_member(INDEX_NAME, {"metadata": {"total_size": total}, "weight_map": placed})


def _header(tensors: list[StoredTensor]) -> bytes:
    """Return the header of a safetensors file: 8 bytes of length and JSON, padded so that the data starts aligned."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.num_bytes
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _file(header: bytes, shard: Shard) -> Iterator[bytes | memoryview]:
    yield header
    for _, chunks in shard:
        yield from chunks()


def _companions(model: Path, dtype: str) -> Iterator[Member]:
    """Return the configuration, with the exported number format, and the tokenizer's files."""
    for file in sorted(model.iterdir()):
        is_index = file.name.endswith(".index.json") or file.name == ADAPTER_CONFIG_NAME
        if not file.is_file() or file.suffix not in _COMPANIONS or is_index:
            continue
        if file.name == CONFIG_NAME:
            config = json.loads(file.read_text())
            config.pop("torch_dtype", None)
            yield _json_member(CONFIG_NAME, {**config, "dtype": dtype})
        else:
            yield _copied(file, file.name)


def _json_member(name: str, value: object) -> Member:
    raw = json.dumps(value, indent=2).encode()
    return Member(name, len(raw), lambda: [raw])


def _copied(file: Path, name: str) -> Member:
    size = file.stat().st_size
    return Member(name, size, lambda: _read(file, 0, size))


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder.name} has no .safetensors file")
    return files


def _whole(tensor: StoredTensor) -> bytes:
    return b"".join(_stored(tensor))


def _stored(tensor: StoredTensor) -> Iterator[bytes]:
    return _read(tensor.file, tensor.start, tensor.num_bytes)


def _read(file: Path, start: int, num_bytes: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(start)
        while num_bytes > 0:
            chunk = stream.read(min(CHUNK_BYTES, num_bytes))
            if not chunk:
                raise OSError(f"{file.name} is shorter than its header says")
            num_bytes -= len(chunk)
            yield chunk
