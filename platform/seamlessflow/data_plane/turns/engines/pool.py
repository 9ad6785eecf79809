"""The engine table: takes the engines of rollout phases and gives one engine to each request.

`core/placement/engine_choice` chooses it. If there are several gateways, each has some of an engine's slots
(`core/placement/fair_slots`), by the demands that all of them reported a moment ago. Requests without a free engine
wait here for the first one that has, including engines that join later. Sessions that began earlier go first, so
requests that were handed over are not overtaken and groups finish. An engine that failed gets nothing for a moment or
until its row changes; a suspected engine gets nothing until it is trusted again.
"""

import asyncio
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from uuid import UUID

from seamlessflow.core.admission.fair_queue import is_full_for
from seamlessflow.core.placement.engine_choice import COOLDOWN_S, EngineSeen, engine_choose
from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.placement.fair_slots import fair_slots
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.paces import EnginePace, TurnPace
from seamlessflow.data_plane.turns.engines.read_again import ReadAgain
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.engines.turn_counts import TurnCounts
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine, TurnWait

PACES_REPORTED_S = 10.0  # paces are reported so seldom, because they are judged by minutes


class TooManyWaiting(Exception):
    """Too many turns already wait for an engine."""


class JobOver(Exception):
    """The job is over, so no engine will serve it again."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Entry(EngineSeen):
    """`num_of_others`: turns that other gateways seem to have there."""

    engine: Engine
    pace: EnginePace
    num_of_others: int = 0

    def turns_add(self, num: int, now_s: float) -> None:
        self.num_in_flight += num
        self.pace_count(now_s)

    def pace_count(self, now_s: float) -> None:
        """Note for the pace how many turns the engine has now."""
        self.pace.turns_set(
            num_own=self.num_in_flight, num_others=self.num_of_others, num_slots=self.num_slots, now_s=now_s
        )

    def describe(self, engine: Engine) -> None:
        """Update the entry from the engine table, or from a report of the engine itself."""
        self.engine, self.num_slots = engine, engine.num_slots
        self.version, self.is_too_old = engine.version, engine.is_too_old


def _entry(engine: Engine, now_s: float) -> _Entry:
    return _Entry(
        engine=engine,
        pace=EnginePace(now_s),
        num_slots=engine.num_slots,
        version=engine.version,
        is_too_old=engine.is_too_old,
    )


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The requirements of a turn for its engine. `order` is the session's position: lower ones get an engine first."""

    job_id: UUID
    order: int = 0
    min_version: int = 0
    preferred: EngineKey | None = None  # the one that served the session last


@dataclass(frozen=True, slots=True, order=True)
class _Waiter:
    order: int
    number: int
    request: EngineRequest = field(compare=False)
    chosen: "asyncio.Future[_Entry]" = field(compare=False)


@dataclass(frozen=True, slots=True)
class JobSlots:
    """How many engines a job has, and how many turns each decodes at once."""

    num_engines: int
    num_slots: int


@dataclass(slots=True)
class EnginePool:
    """`table_set` replaces the engine table; `acquire` waits for an engine with a free slot."""

    clock: Callable[[], float]  # monotonic seconds
    max_held: int
    jobs_over: set[UUID] = field(default_factory=set)
    turns: TurnCounts = field(default_factory=TurnCounts)
    read_again: ReadAgain = field(default_factory=ReadAgain)
    _entries: dict[EngineKey, _Entry] = field(default_factory=dict)
    _by_job: dict[UUID, list[_Entry]] = field(
        default_factory=dict
    )  # the same, so that a turn looks at its own
    reasons: Mapping[UUID, str] = field(
        default_factory=dict
    )  # why jobs wait for machines, as the queue says it
    _waiters: dict[UUID, list[_Waiter]] = field(default_factory=dict)  # one heap per job
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _num_held: int = 0
    _paces_reported_s: float = -math.inf
    _own: str = ""  # this gateway's name
    _wanted: Mapping[str, Mapping[EngineKey, int]] = field(
        default_factory=dict
    )  # turns by engine, of each gateway

    def table_set(self, engines: Iterable[Engine]) -> None:
        fresh = {}
        for engine in engines:
            known = self._entries.get(engine.key)
            if known is None or known.engine.endpoint != engine.endpoint:
                known = _entry(engine, self.clock())
            elif engine.version >= known.version:  # a 409 may have revealed a newer version already
                if engine.version > known.version:
                    known.cooldown_until_s = 0.0
                known.describe(engine)
            fresh[engine.key] = known
        self._entries, self._by_job = fresh, {}
        for entry in fresh.values():
            self._by_job.setdefault(entry.engine.job_id, []).append(entry)
        self._share()
        self._serve_all()

    def demands(self) -> dict[EngineKey, int]:
        """Return how many turns each engine has or would get if those that wait were spread evenly."""
        wanted = {key: entry.num_in_flight for key, entry in self._entries.items()}
        for job_id, waiters in self._waiters.items():
            keys = [entry.engine.key for entry in self._by_job.get(job_id, ())]
            for key in keys:
                wanted[key] += math.ceil(len(waiters) / len(keys))
        return {key: number for key, number in wanted.items() if number}

    def paces_due(self) -> dict[EngineKey, tuple[float, float]] | None:
        """Return how many tokens each engine sampled and how long it was full; None if asked lately."""
        now_s = self.clock()
        if now_s < self._paces_reported_s + PACES_REPORTED_S:
            return None
        self._paces_reported_s = now_s
        paces = {key: entry.pace.sums(now_s) for key, entry in self._entries.items()}
        return {key: sums for key, sums in paces.items() if sums is not None}

    def num_held(self) -> int:
        """Return how many turns wait for an engine."""
        return self._num_held

    def slots_by_job(self) -> dict[UUID, JobSlots]:
        """Return the slots of each job that has an engine."""
        return {
            job_id: JobSlots(len(entries), entries[-1].engine.num_slots)
            for job_id, entries in self._by_job.items()
        }

    def shares_set(self, own: str, demands: Mapping[str, Mapping[EngineKey, int]]) -> None:
        """Take this gateway's quota of each engine, by what each gateway wants of it; `own` is this one's name."""
        self._own, self._wanted = own, demands
        self._share()
        self._serve_all()

    def why_none(self, job_id: UUID) -> str | None:
        """Say why no engine works for the job; None if one does."""
        if self._by_job.get(job_id):
            return None
        return self.reasons.get(job_id) or "no machine rolls out for the job now"

    def acquire(
        self, request: EngineRequest, stall: StallTimer | None = None, wait: TurnWait | None = None
    ) -> AbstractAsyncContextManager[tuple[Engine, TurnPace]]:
        """Give an engine of the job with at least the requested version; it counts as busier inside the block. What the
        turn samples there counts for its pace.

        `stall` and `wait` run while the turn waits for an engine. Raises TooManyWaiting, JobOver and NoEngine.
        """
        return _Acquired(self, request, stall, wait)

    def cool_down(self, engine: Engine) -> None:
        """Give an engine that failed no requests for COOLDOWN_S."""
        if entry := self._entries.get(engine.key):
            entry.cooldown_until_s = self.clock() + COOLDOWN_S
            asyncio.get_running_loop().call_later(COOLDOWN_S, self._serve, engine.job_id)

    def suspect(self, key: EngineKey) -> None:
        """Give the engine no turns until it is trusted again."""
        if entry := self._entries.get(key):
            entry.is_suspected = True

    def trust(self, key: EngineKey) -> None:
        if entry := self._entries.get(key):
            entry.is_suspected = False
            self._serve(entry.engine.job_id)

    def engine(self, key: EngineKey) -> Engine | None:
        """Return the engine as the table and its own answers describe it now; None if it is gone."""
        entry = self._entries.get(key)
        return None if entry is None else entry.engine

    def version_seen(self, engine: Engine, version: int | None) -> None:
        """Note the version from an engine's 409; None means that it serves another job."""
        entry = self._entries.get(engine.key)
        if entry is None:
            return
        if version is None:
            self.cool_down(engine)
            return
        entry.describe(dataclasses.replace(entry.engine, version=version, is_too_old=False))
        self._serve(engine.job_id)

    def _share(self) -> None:
        now, now_s = self.demands(), self.clock()
        for key, entry in self._entries.items():
            wanted = {name: of_engines.get(key, 0) for name, of_engines in self._wanted.items()}
            wanted[self._own] = now.get(key, 0)
            entry.slot_limit = fair_slots(entry.capacity, wanted)[self._own] if len(wanted) > 1 else None
            num_of_others = sum(wanted.values()) - wanted[self._own]
            left = 0 if entry.slot_limit is None else entry.capacity - entry.slot_limit
            entry.num_of_others = min(num_of_others, left)
            entry.pace_count(now_s)

    def _release(self, entry: _Entry) -> None:
        if not entry.has_queue:  # else the next turn of the queue is decoded instead
            self.turns.end(entry.engine.job_id)
        entry.turns_add(-1, self.clock())
        self._serve(entry.engine.job_id)

    def _choose(self, request: EngineRequest) -> _Entry | None:
        return engine_choose(
            self._by_job.get(request.job_id, ()),
            min_version=request.min_version,
            preferred=self._entries.get(request.preferred) if request.preferred else None,
            now_s=self.clock(),
        )

    def _is_any_open(self, job_id: UUID) -> bool:
        now_s = self.clock()
        return any(entry.is_open(now_s) for entry in self._by_job.get(job_id, ()))

    async def _take(self, request: EngineRequest, stall: StallTimer | None, wait: TurnWait | None) -> _Entry:
        entry = None if self._waiters.get(request.job_id) else self._choose(request)
        if entry is not None:
            entry.turns_add(+1, self.clock())
            if not entry.has_queue:
                self.turns.begin(request.job_id)
            return entry
        clock, wait = stall or StallTimer(), wait or TurnWait()
        clock.begin(self.clock())
        wait.begin(self.clock())
        try:
            async with wait.limited():
                return await self._wait(request)
        except TimeoutError as error:
            raise NoEngine(self.why_none(request.job_id) or "no engine has a free slot for it") from error
        finally:
            clock.end(self.clock())
            wait.end(self.clock())

    async def _wait(self, request: EngineRequest) -> _Entry:
        if request.job_id in self.jobs_over:
            raise JobOver(f"job {request.job_id} is over")
        job_id = request.job_id
        if is_full_for(
            num_of_job=len(self._waiters.get(job_id, ())),
            num_in_all=self._num_held,
            num_jobs=len(self._waiters) + (job_id not in self._waiters),
            limit=self.max_held,
        ):
            raise TooManyWaiting(f"{self._num_held} turns are already waiting for an engine")
        chosen: asyncio.Future[_Entry] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(request.order, next(self._numbers), request, chosen)
        heapq.heappush(self._waiters.setdefault(job_id, []), waiter)
        self._num_held += 1
        metrics.HELD.inc()
        self.turns.begin(request.job_id)
        self._serve(request.job_id)  # turns ahead of it may wait for a newer version than it needs
        try:
            return await chosen
        except BaseException:
            if chosen.done() and not chosen.cancelled() and chosen.exception() is None:
                self._release(chosen.result())  # it got an engine while it was being cancelled
            else:
                self.turns.end(request.job_id)
            raise
        finally:
            self._num_held -= 1
            metrics.HELD.dec()

    def _serve_all(self) -> None:
        for job_id in list(self._waiters):
            self._serve(job_id)

    def _serve(self, job_id: UUID) -> None:
        """Give engines with free slots to the waiting turns, in order; a turn that fits none keeps waiting."""
        queue = self._waiters.get(job_id)
        passed_over = []
        while queue and (job_id in self.jobs_over or self._is_any_open(job_id)):
            waiter = heapq.heappop(queue)
            if waiter.chosen.done():  # cancelled
                continue
            if entry := self._choose(waiter.request):
                entry.turns_add(+1, self.clock())
                if entry.has_queue:
                    self.turns.end(job_id)
                waiter.chosen.set_result(entry)
            elif job_id in self.jobs_over:
                waiter.chosen.set_exception(JobOver(f"job {job_id} is over"))
            else:
                passed_over.append(waiter)
        if queue is None:
            return
        for waiter in passed_over:
            heapq.heappush(queue, waiter)
        if not queue:
            del self._waiters[job_id]


class _Acquired:
    """An engine for one turn, as a context; a class, because each turn enters it once or more."""

    __slots__ = ("_entry", "_pool", "_request", "_stall", "_wait")

    def __init__(
        self, pool: EnginePool, request: EngineRequest, stall: StallTimer | None, wait: TurnWait | None
    ) -> None:
        self._pool, self._request, self._stall, self._wait = pool, request, stall, wait
        self._entry: _Entry

    async def __aenter__(self) -> tuple[Engine, TurnPace]:
        entry = self._entry = await self._pool._take(self._request, self._stall, self._wait)
        return entry.engine, TurnPace(entry.pace, self._pool.clock())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool._release(self._entry)
