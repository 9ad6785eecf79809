"""Writes one policy version: takes tensors as raw bytes, bucket by bucket, and writes a complete version folder.

Everything is written to `.writing-<n>` beside the target and fsynced, the manifest last, then renamed: a reader finds
the whole version or none, and a failure (a full disk) leaves nothing behind. The control plane deletes old versions,
since it knows which are pinned and which engines still serve. However large the model is, only one bucket of its bytes
is requested at a time.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from seamlessflow_workers.weights.durable_files import fsync_folder, write_durably, write_failure
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
from seamlessflow_workers.weights.naming import publication_order
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import TensorLayout, WeightsSource

MAX_SHARD_BYTES = 2 * 1024**3
MAX_BUCKET_BYTES = 512 * 1024**2  # gathered and held at a time, unless one tensor is larger
_WRITING_PREFIX = ".writing-"


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    folder: Path
    manifest_sha256: str
    num_bytes: int


class WeightsWriteError(RuntimeError):
    """The weights could not be written; nothing incomplete was left behind."""


def weights_publish(
    versions: Path,
    source: WeightsSource,
    *,
    job_id: UUID,
    version: int,
    parent_version: int,
    dtype: str,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    max_bucket_bytes: int = MAX_BUCKET_BYTES,
    adapter_config: bytes | None = None,
    sealed: SealedShards | None = None,
) -> PublishedWeights:
    """Write `<versions>/<version>/`. An existing folder is replaced unless it holds the same weights.

    With `adapter_config` the tensors are those of an adapter, named as peft names them. `sealed` keeps a copy of the
    shards in memory.
    Raises WeightsWriteError; for a full disk its message says what to do.
    """
    temporary, target = versions / f"{_WRITING_PREFIX}{version}", versions / str(version)
    try:
        _clear_leftovers(versions, up_to=version)
        temporary.mkdir(parents=True)
        layouts = source.layouts()
        companions: dict[str, ShardEntry] = {}
        planned = dict(_plan_shards(layouts, max_shard_bytes))
        if adapter_config is not None:
            planned = {ADAPTER_SHARD_NAME: sorted(layouts)}
            companions[ADAPTER_CONFIG_NAME] = write_durably(temporary / ADAPTER_CONFIG_NAME, [adapter_config])
        shards = {}
        for shard, names in planned.items():
            chunks = _safetensors_chunks(names, layouts, source, max_bucket_bytes)
            if sealed is not None:
                chunks = sealed.tee(shard, chunks)
            entry = write_durably(temporary / shard, chunks)
            mark = None if sealed is None else sealed.fingerprints.get(shard)
            shards[shard] = msgspec.structs.replace(entry, fingerprint=mark)
        raw = manifest_encode(
            Manifest(
                job_id=job_id,
                version=version,
                parent_version=parent_version,
                dtype=dtype,
                total_bytes=sum(layout.num_bytes for layout in layouts.values()),
                shards=shards,
                tensors={
                    name: TensorEntry(shard=shard, dtype=layouts[name].dtype, shape=list(layouts[name].shape))
                    for shard, names in planned.items()
                    for name in names
                },
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


def _clear_leftovers(versions: Path, *, up_to: int) -> None:
    """Delete the leftovers of trainers that were killed while writing."""
    for entry in versions.glob(f"{_WRITING_PREFIX}*"):
        if int(entry.name.removeprefix(_WRITING_PREFIX)) <= up_to:
            shutil.rmtree(entry)


def _plan_shards(
    layouts: Mapping[str, TensorLayout], max_shard_bytes: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield (file, names) in a fixed order, so that the same weights give the same files."""
    ordered = sorted(layouts, key=publication_order)
    for number, names in enumerate(_cut(ordered, layouts, max_shard_bytes), start=1):
        yield f"model-{number:05d}.safetensors", names


def _cut(names: Sequence[str], layouts: Mapping[str, TensorLayout], max_bytes: int) -> Iterator[list[str]]:
    """Yield runs of consecutive names, cut where the next tensor would not fit; a larger tensor is alone."""
    part: list[str] = []
    num_bytes = 0
    for name in names:
        if part and num_bytes + layouts[name].num_bytes > max_bytes:
            yield part
            part, num_bytes = [], 0
        part.append(name)
        num_bytes += layouts[name].num_bytes
    yield part


def _safetensors_chunks(
    names: Sequence[str], layouts: Mapping[str, TensorLayout], source: WeightsSource, max_bucket_bytes: int
) -> Iterator[bytes | memoryview]:
    """Yield the safetensors layout: 8 bytes of header length, JSON header, data; one bucket is in memory at a time."""
    header: dict[str, dict[str, object]] = {}
    offset = 0
    for name in names:
        end = offset + layouts[name].num_bytes
        shape = list(layouts[name].shape)
        header[name] = {"dtype": layouts[name].dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = msgspec.json.encode(header)
    raw += b" " * (-len(raw) % 8)  # the data starts aligned
    yield len(raw).to_bytes(8, "little") + raw
    for bucket in _cut(names, layouts, max_bucket_bytes):
        held = source.tensors(bucket)
        yield from (held[name].data for name in bucket)
        del held  # before the next one is gathered


def _put_in_place(temporary: Path, target: Path, manifest: bytes) -> None:
    if target.exists():
        existing = target / MANIFEST_NAME
        if existing.is_file() and existing.read_bytes() == manifest:
            shutil.rmtree(temporary)  # an earlier trainer wrote it and died before it could announce it
            return
        shutil.rmtree(target)
    temporary.rename(target)
    fsync_folder(target.parent)
