"""The queue of this moment, shared by all readers of this process.

Reads a snapshot and explains it. A cheap one is computed for each answer. One that took long is kept for ten times as
long as it took, so that a large fleet with many readers costs at most a tenth of a core. Invariants: a kept queue names
no reader, so each answer is still narrowed to what its reader may see; at most one queue is kept.
"""

from collections.abc import Callable
from threading import RLock
from time import monotonic, thread_time
from typing import TypeVar
from uuid import UUID

from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.core.scheduling.explain.queue import Queue, QueueEntry
from seamlessflow.core.scheduling.explain.unblocks import Trials, Unblock, UnblockKind, unblocks

CHEAP_S = 0.1  # processor time below which nothing is kept
KEPT_FACTOR = 10.0

Result = TypeVar("Result")


class KeptQueue:
    """A queue, its offers as far as readers asked for them, and what these cost so far in processor time."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._born_s = monotonic()
        self._cost_s = 0.0
        self.queue = self._timed(lambda: Queue(snapshot_load()))
        self._trials = Trials(self.queue.plan.snapshot)
        self._offers: dict[tuple[UUID, frozenset[UnblockKind]], tuple[Unblock, ...]] = {}

    @property
    def is_over(self) -> bool:
        is_cheap = self._cost_s < CHEAP_S
        return is_cheap or monotonic() > self._born_s + KEPT_FACTOR * self._cost_s

    def unblocks(self, entry: QueueEntry, kinds: frozenset[UnblockKind]) -> tuple[Unblock, ...]:
        key = (entry.job.id, kinds)
        with self._lock:
            if key not in self._offers:
                self._offers[key] = self._timed(
                    lambda: unblocks(self.queue, entry, self._trials, kinds=kinds)
                )
            return self._offers[key]

    def _timed(self, act: Callable[[], Result]) -> Result:
        began_s = thread_time()
        result = act()
        self._cost_s += thread_time() - began_s
        return result


class QueueKeeper:
    def __init__(self) -> None:
        self._lock = RLock()
        self._kept: KeptQueue | None = None

    def current(self) -> KeptQueue:
        """Return the queue, read anew unless that was expensive a short while ago."""
        with self._lock:
            if self._kept is None or self._kept.is_over:
                self._kept = KeptQueue()
            return self._kept


KEEPER = QueueKeeper()
