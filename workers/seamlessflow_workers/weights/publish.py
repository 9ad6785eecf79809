"""Writes one policy version: tensors as raw bytes in, a whole version folder out.

Everything goes to `.writing-<n>` beside the target, is fsynced, the manifest last, then renamed: a reader finds a
version whole or not at all, and a failure (a full disk) leaves nothing behind. Retention is the control plane's, which
knows what is pinned and what engines still serve.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from seamlessflow_workers.weights.manifest import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SHARD_NAME,
    MANIFEST_NAME,
    Manifest,
    ShardEntry,
    TensorEntry,
    manifest_digest,
    manifest_encode,
)

MAX_SHARD_BYTES = 2 * 1024**3
_WRITING_PREFIX = ".writing-"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor without a framework: contiguous little-endian bytes."""

    dtype: str  # F32, BF16, …
    shape: tuple[int, ...]
    data: bytes | memoryview
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    folder: Path
    manifest_sha256: str
    num_bytes: int

    @property
    def uri(self) -> str:
        return self.folder.as_uri()


class WeightsWriteError(RuntimeError):
    """The weights could not be written; nothing half-made was left."""


def weights_publish(
    versions: Path,
    tensors: Mapping[str, RawTensor],
    *,
    job_id: UUID,
    version: int,
    parent_version: int,
    dtype: str,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    adapter_config: bytes | None = None,
) -> PublishedWeights:
    """Write `<versions>/<version>/`. A folder already there is replaced unless it holds the same weights.

    With `adapter_config` the tensors are those of an adapter, named as peft names them.
    Raises WeightsWriteError, for a full disk with the way out in the sentence.
    """
    temporary, target = versions / f"{_WRITING_PREFIX}{version}", versions / str(version)
    try:
        _clear_leftovers(versions, up_to=version)
        temporary.mkdir(parents=True)
        companions: dict[str, ShardEntry] = {}
        if adapter_config is None:
            shards, entries = _write_shards(temporary, tensors, max_shard_bytes)
        else:
            shards, entries = _write_shard(temporary, ADAPTER_SHARD_NAME, sorted(tensors), tensors)
            companions[ADAPTER_CONFIG_NAME] = write_durably(temporary / ADAPTER_CONFIG_NAME, [adapter_config])
        raw = manifest_encode(
            Manifest(
                job_id=job_id,
                version=version,
                parent_version=parent_version,
                dtype=dtype,
                total_bytes=sum(tensor.num_bytes for tensor in tensors.values()),
                shards=shards,
                tensors=entries,
                companions=companions,
            )
        )
        write_durably(temporary / MANIFEST_NAME, [raw])
        fsync_folder(temporary)
        _put_in_place(temporary, target, raw)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise WeightsWriteError(write_failure(f"weights of version {version}", versions, error)) from error
    num_bytes = len(raw) + sum(file.num_bytes for file in (*shards.values(), *companions.values()))
    return PublishedWeights(folder=target, manifest_sha256=manifest_digest(raw), num_bytes=num_bytes)


def write_failure(subject: str, folder: Path, error: OSError) -> str:
    """One sentence for people about a failed write under the artifact root."""
    if error.errno in _NO_SPACE:
        return f"cannot write {subject}: no space left in {folder}; free space or change ARTIFACT_ROOT"
    return f"cannot write {subject} in {folder}: {error.strerror or error}"


def _clear_leftovers(versions: Path, *, up_to: int) -> None:
    """Of trainers that were killed while writing."""
    for entry in versions.glob(f"{_WRITING_PREFIX}*"):
        if int(entry.name.removeprefix(_WRITING_PREFIX)) <= up_to:
            shutil.rmtree(entry)


def _write_shards(
    folder: Path, tensors: Mapping[str, RawTensor], max_shard_bytes: int
) -> tuple[dict[str, ShardEntry], dict[str, TensorEntry]]:
    shards: dict[str, ShardEntry] = {}
    entries: dict[str, TensorEntry] = {}
    for number, names in enumerate(_shard_names(tensors, max_shard_bytes), start=1):
        part = _write_shard(folder, f"model-{number:05d}.safetensors", names, tensors)
        shards |= part[0]
        entries |= part[1]
    return shards, entries


def _write_shard(
    folder: Path, shard: str, names: list[str], tensors: Mapping[str, RawTensor]
) -> tuple[dict[str, ShardEntry], dict[str, TensorEntry]]:
    entry = write_durably(folder / shard, _safetensors_chunks(names, tensors))
    return {shard: entry}, {
        name: TensorEntry(shard=shard, dtype=tensors[name].dtype, shape=list(tensors[name].shape))
        for name in names
    }


def _shard_names(tensors: Mapping[str, RawTensor], max_shard_bytes: int) -> Iterator[list[str]]:
    """Names in a fixed order, cut where the next tensor would not fit; a larger tensor has a shard of its own."""
    names: list[str] = []
    num_bytes = 0
    for name in sorted(tensors):
        if names and num_bytes + tensors[name].num_bytes > max_shard_bytes:
            yield names
            names, num_bytes = [], 0
        names.append(name)
        num_bytes += tensors[name].num_bytes
    yield names


def _safetensors_chunks(names: list[str], tensors: Mapping[str, RawTensor]) -> Iterator[bytes | memoryview]:
    """The safetensors layout (8 bytes of header length, JSON header, data) without a copy of the whole shard."""
    header: dict[str, dict[str, object]] = {}
    offset = 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.num_bytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    raw = msgspec.json.encode(header)
    raw += b" " * (-len(raw) % 8)  # the data starts aligned
    yield len(raw).to_bytes(8, "little") + raw
    for name in names:
        yield tensors[name].data


def write_durably(path: Path, chunks: Iterable[bytes | memoryview]) -> ShardEntry:
    """Write a new file and fsync it; return its digest and size."""
    digest, num_bytes = hashlib.sha256(), 0
    with path.open("xb") as file:
        for chunk in chunks:
            digest.update(chunk)
            num_bytes += file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return ShardEntry(sha256=digest.hexdigest(), num_bytes=num_bytes)


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(temporary: Path, target: Path, manifest: bytes) -> None:
    if target.exists():
        existing = target / MANIFEST_NAME
        if existing.is_file() and existing.read_bytes() == manifest:
            shutil.rmtree(temporary)  # written before, by a trainer that died before it could announce it
            return
        shutil.rmtree(target)
    temporary.rename(target)
    fsync_folder(target.parent)
