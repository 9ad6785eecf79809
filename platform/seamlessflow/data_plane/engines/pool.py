"""The table of routable engines: rows of rollout phases in, one engine per request out.

Choice: the engine that served the session last (its prompt cache is there), unless it is much busier than the idlest;
else the least loaded. An engine that failed is left alone for a moment or until its row changes. When none fits, the
request is held until one appears.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.engines.client import Engine

SHUN_S = 0.5  # an engine that failed is not asked again sooner
STICKY_SLACK = 8  # requests that the session's own engine may have more than the idlest


class TooManyHeld(Exception):
    """The queue of turns that wait for an engine is full."""


class JobOver(Exception):
    """No engine will ever serve this job again."""


@dataclass(slots=True)
class _Entry:
    engine: Engine
    num_in_flight: int = 0
    shunned_until_s: float = 0.0


@dataclass(slots=True)
class EnginePool:
    """Entries by phase. `table_set` replaces the table; `acquire` waits for an engine."""

    clock: Callable[[], float]  # monotonic seconds
    max_held: int
    jobs_over: set[UUID] = field(default_factory=set)
    _entries: dict[UUID, _Entry] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _num_held: int = 0

    def table_set(self, engines: Iterable[Engine]) -> None:
        fresh = {}
        for engine in engines:
            known = self._entries.get(engine.phase_id)
            if known is None or known.engine.endpoint != engine.endpoint:
                known = _Entry(engine)
            elif engine.version > known.engine.version:  # a 409 may have told a newer version already
                known.engine, known.shunned_until_s = engine, 0.0
            fresh[engine.phase_id] = known
        self._entries = fresh
        self._wake()

    @asynccontextmanager
    async def acquire(
        self, job_id: UUID, *, min_version: int, preferred: UUID | None
    ) -> AsyncIterator[Engine]:
        """An engine of the job at `min_version` or newer, counted as busy inside the block.

        Raises TooManyHeld and JobOver.
        """
        entry = self._choose(job_id, min_version, preferred) or await self._wait(
            job_id, min_version, preferred
        )
        entry.num_in_flight += 1
        try:
            yield entry.engine
        finally:
            entry.num_in_flight -= 1

    def shun(self, engine: Engine) -> None:
        """It failed; leave it alone for a moment."""
        if entry := self._entries.get(engine.phase_id):
            entry.shunned_until_s = self.clock() + SHUN_S

    def version_seen(self, engine: Engine, version: int | None) -> None:
        """A 409 named the version that the engine really serves, or another job."""
        entry = self._entries.get(engine.phase_id)
        if entry is None:
            return
        if version is None:
            self.shun(engine)
            return
        entry.engine = dataclasses.replace(entry.engine, version=version)
        self._wake()

    def _choose(self, job_id: UUID, min_version: int, preferred: UUID | None) -> _Entry | None:
        now_s = self.clock()
        fitting = [
            entry
            for entry in self._entries.values()
            if entry.engine.job_id == job_id
            and entry.engine.version >= min_version
            and entry.shunned_until_s <= now_s
        ]
        if not fitting:
            return None
        idlest = min(fitting, key=lambda entry: entry.num_in_flight)
        own = self._entries.get(preferred) if preferred else None
        if own is not None and own in fitting and own.num_in_flight <= idlest.num_in_flight + STICKY_SLACK:
            return own
        return idlest

    async def _wait(self, job_id: UUID, min_version: int, preferred: UUID | None) -> _Entry:
        if self._num_held >= self.max_held:
            raise TooManyHeld(f"{self._num_held} turns wait for an engine already")
        self._num_held += 1
        metrics.HELD.inc()
        try:
            while (entry := self._choose(job_id, min_version, preferred)) is None:
                if job_id in self.jobs_over:
                    raise JobOver(f"job {job_id} is over")
                changed = self._changed
                try:
                    async with asyncio.timeout(SHUN_S / 2):  # shunned engines come back by time alone
                        await changed.wait()
                except TimeoutError:
                    continue
            return entry
        finally:
            self._num_held -= 1
            metrics.HELD.dec()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
