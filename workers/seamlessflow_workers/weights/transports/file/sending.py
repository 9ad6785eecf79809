"""Writes one policy version: takes tensors as raw bytes, a few buckets at a time, and writes a complete version folder.

Everything is written to `.writing-<n>` beside the target and fsynced, the manifest last, then renamed: a reader finds
the whole version or none, and a failure (a full disk) leaves nothing behind. The control plane deletes old versions,
since it knows which are pinned and which engines still serve. However large the model is, a process has few buckets
of its bytes at a time (`shards`).
"""

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from seamlessflow_workers.weights.durable_files import fsync_folder, write_durably, write_failure
from seamlessflow_workers.weights.manifest import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SHARD_NAME,
    MANIFEST_NAME,
    ShardEntry,
    TensorEntry,
    WeightsManifest,
    manifest_digest,
    manifest_encode,
)
from seamlessflow_workers.weights.naming import publication_order
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import TensorLayout, WeightsNotFinite, WeightsSource
from seamlessflow_workers.weights.transports.file.shards import (
    MAX_BUCKET_BYTES,
    NUM_AT_ONCE,
    ShardOrder,
    ShardSource,
    cut,
    shards_write,
)

MAX_SHARD_BYTES = 512 * 1024**2  # whatever the number of ranks, so that the same weights give the same files
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
    source: WeightsSource | ShardSource,
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
    """Write `<versions>/<version>/`. An existing folder is replaced unless it has the same weights.

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
        order = ShardOrder(str(temporary), planned, max_bucket_bytes)
        shards = _write(order, source, sealed)
        raw = manifest_encode(
            WeightsManifest(
                job_id=job_id,
                version=version,
                parent_version=parent_version,
                dtype=dtype,
                are_finite=isinstance(source, ShardSource),
                total_bytes=sum(layout.num_bytes for layout in layouts.values()),
                shards={name: shards[name] for name in planned},
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
    except WeightsNotFinite as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise WeightsWriteError(f"weights of version {version} cannot serve: {error}") from error
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
    for number, names in enumerate(cut(ordered, layouts, max_shard_bytes), start=1):
        yield f"model-{number:05d}.safetensors", names


def _write(
    order: ShardOrder, source: WeightsSource | ShardSource, sealed: SealedShards | None
) -> dict[str, ShardEntry]:
    if not isinstance(source, ShardSource):
        return shards_write(
            order, source.layouts(), lambda names, _is_own: source.tensors(names), sealed=sealed
        )
    entries = source.shards_write(order, sealed)
    if sealed is None:
        return entries
    kept = sealed.sizes()
    elsewhere = [name for name in order.shards if name not in kept]  # written by other processes
    with ThreadPoolExecutor(NUM_AT_ONCE) as threads:
        list(threads.map(lambda name: sealed.take(name, Path(order.folder) / name), elsewhere))
    return entries


def _put_in_place(temporary: Path, target: Path, manifest: bytes) -> None:
    if target.exists():
        existing = target / MANIFEST_NAME
        if existing.is_file() and existing.read_bytes() == manifest:
            shutil.rmtree(temporary)  # an earlier trainer wrote it and died before it could announce it
            return
        shutil.rmtree(target)
    temporary.rename(target)
    fsync_folder(target.parent)
