"""Watches engines that have requests: suspects an engine that yields nothing, and trusts it once it samples again.

It takes requests as they begin and end, the engine table and the clock. It cuts requests off from a suspected engine,
makes the pool leave such engines out, and reports each suspicion and its end as an event. `core.liveness.stall`
decides; this module only measures. States of an engine: trusted → suspected → trusted, or gone with its row.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType

from seamlessflow.core.liveness.stall import ProbeAnswer, StallWatch
from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.client import (
    EngineClient,
    EngineRefused,
    EngineUnavailable,
    VersionMismatch,
)
from seamlessflow.data_plane.turns.engines.lifeline import Lifeline
from seamlessflow.data_plane.turns.engines.pool import EnginePool
from seamlessflow.data_plane.turns.engines.requests import GenerateRequest
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.engines.suspicions import Suspicion, SuspicionLog
from seamlessflow.runtime.tasks import task_supervised

log = logging.getLogger(__name__)

TICK_S = 0.25
PREFILL_TOKENS_PER_S = 4000.0
FIRST_UPDATE_S = 5.0  # assumed length of a weight update until one was seen
MOST_UPDATE_S = 10.0
PROVE_EVERY_S = 1.0
PROVE_TIMEOUT_S = 5.0
PROOF = GenerateRequest(token_ids=b"\0\0\0\0", max_tokens=1, temperature=1.0, stop_token_ids=())


@dataclass(slots=True)
class _Watched:
    engine: Engine
    stall: StallWatch = field(default_factory=StallWatch)
    lifelines: set[Lifeline] = field(default_factory=set)
    counters: str | None = None  # at the last probe
    counted_at_s: float = 0.0  # how long the silence had lasted then
    probing: "asyncio.Task[None] | None" = None
    proving: "asyncio.Task[None] | None" = None
    behind_since_s: float | None = None
    last_update_s: float = FIRST_UPDATE_S

    @property
    def is_suspected(self) -> bool:
        return self.proving is not None

    def prefill_s(self) -> float:
        """Return how long the prefill of the longest prompt that has no tokens yet may take."""
        waiting = (line.num_prompt_tokens for line in self.lifelines if not line.has_tokens)
        return max(waiting, default=0) / PREFILL_TOKENS_PER_S

    def update_s(self) -> float:
        return 0.0 if self.behind_since_s is None else min(self.last_update_s, MOST_UPDATE_S)

    def table_said(self, engine: Engine, now_s: float) -> None:
        if engine.is_behind and self.behind_since_s is None:
            self.behind_since_s = now_s
        elif not engine.is_behind and self.behind_since_s is not None:
            if not self.is_suspected:
                self.last_update_s = now_s - self.behind_since_s
            self.behind_since_s = None
        self.engine = engine

    def stop(self) -> None:
        for task in (self.probing, self.proving):
            if task is not None:
                task.cancel()


class _Request:
    """A request that is watched, as a context, which gives its lifeline."""

    __slots__ = ("_lifeline", "_stall", "_watched")

    def __init__(self, watched: _Watched, stall: StallTimer, lifeline: Lifeline) -> None:
        self._watched, self._stall, self._lifeline = watched, stall, lifeline

    def __enter__(self) -> Lifeline:
        if not self._watched.lifelines:
            self._watched.stall.rested()
        self._watched.lifelines.add(self._lifeline)
        self._stall.attach(self._lifeline)
        return self._lifeline

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stall.detach(self._lifeline)
        self._watched.lifelines.discard(self._lifeline)


class EngineWatch:
    def __init__(
        self, pool: EnginePool, client: EngineClient, clock: Callable[[], float], suspicions: SuspicionLog
    ) -> None:
        self._pool = pool
        self._client = client
        self._clock = clock
        self._suspicions = suspicions
        self._watched: dict[EngineKey, _Watched] = {}

    async def run(self) -> None:
        """Tick until cancelled."""
        last_s = self._clock()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                last_s, elapsed_s = self._clock(), self._clock() - last_s
                self.tick(elapsed_s)
        finally:
            for watched in self._watched.values():
                watched.stop()

    def table_set(self, engines: Iterable[Engine]) -> None:
        fresh = {}
        for engine in engines:
            known = self._watched.pop(engine.key, None)
            if known is not None and known.engine.endpoint != engine.endpoint:
                known.stop()
                known = None
            fresh[engine.key] = known or _Watched(engine)
            fresh[engine.key].table_said(engine, self._clock())
        for gone in self._watched.values():
            gone.stop()
        self._watched = fresh
        self._count()

    def request(self, engine: Engine, stall: StallTimer, request: GenerateRequest) -> "_Request":
        """Watch a request while the engine works on it; `stall` is its session's stall timer."""
        watched = self._watched.get(engine.key) or _Watched(engine)  # its row may just have gone
        lifeline = Lifeline(self._clock, watched.stall, len(request.token_ids) // TOKEN_BYTES)
        return _Request(watched, stall, lifeline)

    def tick(self, elapsed_s: float) -> None:
        for watched in self._watched.values():
            if watched.is_suspected or not watched.lifelines:
                continue
            stall = watched.stall
            stall.listened(elapsed_s)
            if watched.probing is None and stall.wants_probe():
                watched.probing = asyncio.create_task(self._probe(watched))
            if stall.is_stalled(prefill_s=watched.prefill_s(), update_s=watched.update_s()):
                self._suspect(watched)

    async def _probe(self, watched: _Watched) -> None:
        stall = watched.stall
        former = watched.counters if stall.silence_s >= watched.counted_at_s else None
        try:
            counters = await self._client.counters(watched.engine)
        finally:
            watched.probing = None
        watched.counters, watched.counted_at_s = counters, stall.silence_s
        if counters is None:
            stall.probed(ProbeAnswer.MUTE)
        elif counters == "" or (former is not None and former != counters):
            stall.probed(ProbeAnswer.MOVED)
        elif former == counters:
            stall.probed(ProbeAnswer.SAME)

    def _suspect(self, watched: _Watched) -> None:
        engine, stall = watched.engine, watched.stall
        suspicion = Suspicion(engine, silent_s=stall.silence_s, num_turns=len(watched.lifelines))
        stall.suspected(prefill_s=watched.prefill_s(), update_s=watched.update_s())
        watched.counters = None
        self._pool.suspect(engine.key)
        for lifeline in watched.lifelines:
            lifeline.cut(f"the engine is suspected: it yielded no token for {suspicion.silent_s:.1f} s")
        watched.proving = task_supervised(
            self._until_proved(watched), name="suspected engine", may_return=True
        )
        self._suspicions.began(suspicion)
        self._count()

    async def _until_proved(self, watched: _Watched) -> None:
        since_s = self._clock()
        while not await self._proves_itself(watched.engine.key):  # noqa: ASYNC110 - another process
            await asyncio.sleep(PROVE_EVERY_S)
        watched.proving = None
        watched.stall.rested()
        self._pool.trust(watched.engine.key)
        self._suspicions.ended(watched.engine, away_s=self._clock() - since_s)
        self._count()

    async def _proves_itself(self, key: EngineKey) -> bool:
        """Return whether the engine samples one token, for any prompt, under the version that it serves now."""
        engine = self._pool.engine(key)
        if engine is None:
            return False
        lifeline = Lifeline(self._clock, StallWatch(), num_prompt_tokens=1)
        try:
            async with asyncio.timeout(PROVE_TIMEOUT_S):
                async with aclosing(
                    self._client.generate(engine, PROOF, lifeline, is_streamed=False)
                ) as chunks:
                    return any([chunk.num_tokens > 0 async for chunk in chunks])
        except VersionMismatch as mismatch:
            self._pool.version_seen(engine, mismatch.served_version)
        except EngineRefused:
            return True  # it read the request
        except (EngineUnavailable, TimeoutError) as error:
            log.debug("%s stays suspected: %s", engine.noun, error)
        return False

    def _count(self) -> None:
        metrics.SUSPECTED.set(sum(watched.is_suspected for watched in self._watched.values()))
