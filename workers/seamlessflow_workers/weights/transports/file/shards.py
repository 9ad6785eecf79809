"""Writes the files of a version's shards, several at a time and on several ranks: tensors in, files and digests out.

Shards are dealt to the ranks in turn, and each rank writes its own. Those that are written at the same moment take
turns bucket by bucket, so that a thread for each digests and writes while the next bucket is fetched. Where ranks
have to gather buckets together, all of them fetch all buckets in the same order and drop those of others. Invariants:
what a file contains does not depend on the number of ranks; at most `MAX_BUFFERED_BUCKETS` are in memory.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import Protocol, runtime_checkable

import msgspec

from seamlessflow_workers.weights.durable_files import write_durably
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.safetensors_layout import safetensors_head
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout

# Shards that a rank writes at a time; the same everywhere, because ranks gather in the same order.
NUM_AT_ONCE = 4
MAX_BUFFERED_BUCKETS = 2 * NUM_AT_ONCE
MAX_BUCKET_BYTES = 64 * 1024**2  # fetched at a time, unless one tensor is larger

# Takes names, and whether this rank writes these tensors; returns them if so.
Fetch = Callable[[Sequence[str], bool], Mapping[str, RawTensor]]


class ShardOrder(msgspec.Struct, frozen=True):
    """What to write: into a folder that all ranks see, files with these tensors in this order."""

    folder: str
    shards: dict[str, list[str]]
    max_bucket_bytes: int = MAX_BUCKET_BYTES


@runtime_checkable
class ShardSource(Protocol):
    """A source that writes its shards itself, on all ranks that have some of their tensors."""

    def layouts(self) -> Mapping[str, TensorLayout]:
        """Return the layout of every published tensor, by name."""
        ...

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        """Write all shards of the order; `sealed` keeps copies of those that this process writes.

        Raises OSError, or WeightsNotFinite: every value is checked, so that no reader has to do it again.
        """
        ...


def shards_write(
    order: ShardOrder,
    layouts: Mapping[str, TensorLayout],
    fetch: Fetch,
    *,
    sealed: SealedShards | None = None,
    rank: int = 0,
    num_ranks: int = 1,
    gathers_together: bool = False,
) -> dict[str, ShardEntry]:
    """Write the shards of one rank; `sealed` keeps copies of them. Raises OSError.

    With `gathers_together` every bucket of every shard is fetched, whichever rank writes it, even if a file of this
    rank fails: the other ranks would wait for it.
    """
    own = {name for number, name in enumerate(order.shards) if number % num_ranks == rank}
    names = list(order.shards) if gathers_together else [name for name in order.shards if name in own]
    num_at_once = NUM_AT_ONCE * num_ranks if gathers_together else NUM_AT_ONCE
    free_buckets = Semaphore(MAX_BUFFERED_BUCKETS)
    written: dict[str, Future[ShardEntry]] = {}
    with ThreadPoolExecutor(NUM_AT_ONCE, thread_name_prefix="shard") as threads:
        for together in _groups(names, num_at_once):
            shards = [_Shard(order, name, layouts, free_buckets, is_own=name in own) for name in together]
            writing = {one.name: threads.submit(one.write, sealed) for one in shards if one.is_own}
            try:
                for shard, bucket in _in_turns(shards):
                    shard.add(fetch(bucket, shard.is_own))
            except BaseException:
                for shard in shards:
                    shard.abandon()
                raise
            written |= writing
            if not gathers_together:
                _results(writing)
        return _results(written)


def _results(writing: Mapping[str, Future[ShardEntry]]) -> dict[str, ShardEntry]:
    return {name: future.result() for name, future in writing.items()}


def cut(names: Sequence[str], layouts: Mapping[str, TensorLayout], max_bytes: int) -> Iterator[list[str]]:
    """Yield runs of consecutive names, cut where the next tensor would not fit; a larger tensor is alone."""
    run: list[str] = []
    num_bytes = 0
    for name in names:
        if run and num_bytes + layouts[name].num_bytes > max_bytes:
            yield run
            run, num_bytes = [], 0
        run.append(name)
        num_bytes += layouts[name].num_bytes
    yield run


def _groups(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _in_turns(shards: Sequence["_Shard"]) -> Iterator[tuple["_Shard", list[str]]]:
    """Yield one bucket of each shard, then the next one of each."""
    for buckets in itertools.zip_longest(*(shard.buckets for shard in shards)):
        for shard, bucket in zip(shards, buckets, strict=True):
            if bucket is not None:
                yield shard, bucket


class _Abandoned(Exception):
    """The thread that fetches buckets has failed."""


class _Shard:
    """A file: buckets enter from the thread that fetches, and `write` takes them in a thread of its own."""

    def __init__(
        self,
        order: ShardOrder,
        name: str,
        layouts: Mapping[str, TensorLayout],
        free_buckets: Semaphore,
        *,
        is_own: bool,
    ) -> None:
        """`free_buckets` counts the buckets that all shards together may still buffer."""
        self.name = name
        self.is_own = is_own
        self.buckets = list(cut(order.shards[name], layouts, order.max_bucket_bytes))
        self._path = Path(order.folder) / name
        self._head = safetensors_head({tensor: layouts[tensor] for tensor in order.shards[name]})
        self._free_buckets = free_buckets
        self._queue: SimpleQueue[Mapping[str, RawTensor] | None] = SimpleQueue()  # None: no more will come
        self._lock = Lock()
        self._num_buffered = 0
        self._has_failed = False

    def add(self, bucket: Mapping[str, RawTensor]) -> None:
        """Hand over the next bucket; wait while too many are buffered."""
        if not self.is_own:
            return
        self._free_buckets.acquire()
        with self._lock:
            self._num_buffered += 1
            self._queue.put(bucket)
            if self._has_failed:
                self._release()

    def abandon(self) -> None:
        """Let `write` end although buckets are missing."""
        self._queue.put(None)

    def write(self, sealed: SealedShards | None) -> ShardEntry:
        chunks = self._chunks()
        try:
            return write_durably(self._path, chunks if sealed is None else sealed.tee(self.name, chunks))
        except BaseException:
            with self._lock:  # the thread that fetches goes on, because other ranks may count on it
                self._has_failed = True
                while self._num_buffered:
                    self._release()
            raise

    def _chunks(self) -> Iterator[bytes | memoryview]:
        yield self._head
        for names in self.buckets:
            bucket = self._queue.get()
            if bucket is None:
                raise _Abandoned
            yield from (bucket[name].data for name in names)
            del bucket
            with self._lock:
                self._release()

    def _release(self) -> None:
        self._num_buffered -= 1
        self._free_buckets.release()
