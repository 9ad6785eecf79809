"""Keeps an answer growing until it is finished, whatever happens to engines.

`grow` takes an `AnswerProgress` and yields its chunks as they are sampled, already added to it. If an engine aborts,
drains, changes its version, dies or stalls, the answer continues from its own tokens on another engine with the same or
a newer version, or waits for one. The caller's stream stays open meanwhile. Closing the iterator early aborts the
engine's request.
"""

import itertools
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason, TokenChunk
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.client import (
    EngineClient,
    EngineUnavailable,
    VersionMismatch,
)
from seamlessflow.data_plane.turns.engines.lifeline import Lifeline
from seamlessflow.data_plane.turns.engines.paces import TurnPace
from seamlessflow.data_plane.turns.engines.pool import EnginePool, EngineRequest
from seamlessflow.data_plane.turns.engines.requests import GenerateRequest
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.engines.turn_wait import TurnWait
from seamlessflow.data_plane.turns.engines.watch import EngineWatch

log = logging.getLogger(__name__)

# Engines stream longer answers even if the client does not, so that little is lost when one dies.
STREAM_ABOVE_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling settings that a job fixes for all its turns."""

    job_id: UUID
    temperature: float
    stop_token_ids: tuple[int, ...]


_session_order = itertools.count()


@dataclass(slots=True)
class Affinity:
    """The engine that last served a session, the session's position among all that began here, and its stall timer."""

    engine: EngineKey | None = None
    order: int = field(default_factory=_session_order.__next__)
    min_version: int = 0  # engines with an older version may not serve it
    stall: StallTimer = field(default_factory=StallTimer)

    @classmethod
    def of_evaluation(cls, version: int, *, handicap: int) -> "Affinity":
        """Return a position behind the next `handicap` sessions that begin here: training goes first, but not
        forever."""
        return cls(order=next(_session_order) + handicap + 1, min_version=version)


class RolloutManager:
    def __init__(
        self, pool: EnginePool, client: EngineClient, watch: EngineWatch, clock: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._client = client
        self._watch = watch
        self._clock = clock

    def why_none(self, job_id: UUID) -> str | None:
        """Say why no engine works for the job; None if one does."""
        return self._pool.why_none(job_id)

    async def grow(
        self,
        progress: AnswerProgress,
        sampling: Sampling,
        affinity: Affinity,
        wait: TurnWait | None = None,
        *,
        is_streamed: bool = True,
    ) -> AsyncGenerator[TokenChunk, None]:
        """Yield chunks until `progress` is finished. Raises EngineRefused, JobOver, TooManyWaiting and NoEngine.

        is_streamed: otherwise each engine sends one chunk. Time that a failing engine cost is credited to the session's
        stall timer, so its task is not charged for it.
        """
        last_token_s = self._clock()
        while progress.is_unfinished():
            request = _request(progress, sampling)
            wanted = _wanted(progress, sampling, affinity)
            async with self._pool.acquire(wanted, affinity.stall, wait) as (engine, pace):
                affinity.engine = engine.key
                with self._watch.request(engine, affinity.stall, request) as lifeline:
                    chunks = self._client.generate(engine, request, lifeline, is_streamed=is_streamed)
                    try:
                        async with aclosing(chunks):
                            async for chunk in chunks:
                                last_token_s = self._add(progress, chunk, lifeline, pace, last_token_s)
                                yield chunk
                                if not progress.is_unfinished() and chunk.finish_reason is None:
                                    return
                                if chunk.finish_reason is FinishReason.ABORT:
                                    self._leave(engine, progress, "aborted")
                    except (VersionMismatch, EngineUnavailable) as error:  # another engine continues
                        affinity.stall.credit(lifeline.last_heard_s, self._clock())
                        if isinstance(error, VersionMismatch):
                            self._pool.version_seen(engine, error.served_version)
                        else:
                            self._leave(engine, progress, str(error))

    def _add(
        self,
        progress: AnswerProgress,
        chunk: TokenChunk,
        lifeline: Lifeline,
        pace: TurnPace,
        last_token_s: float,
    ) -> float:
        """Add a chunk, and return when it came."""
        now_s = self._clock()
        lifeline.heard(now_s)
        pace.sampled(chunk.num_tokens, now_s)
        if progress.num_tokens:
            progress.max_gap_s = max(progress.max_gap_s, now_s - last_token_s)
        progress.add(chunk)
        return now_s

    def _leave(self, engine: Engine, progress: AnswerProgress, why: str) -> None:
        self._pool.cool_down(engine)
        self._pool.read_again.add(engine.phase_id, progress.moved())
        metrics.HANDOVERS.inc()
        if progress.token_ids:
            metrics.CONTINUATIONS.inc()
        log.info("turn leaves engine %s after %d tokens: %s", engine.key, progress.num_tokens, why)


def _wanted(progress: AnswerProgress, sampling: Sampling, affinity: Affinity) -> EngineRequest:
    min_version = max(progress.min_version, affinity.min_version)
    return EngineRequest(sampling.job_id, affinity.order, min_version, affinity.engine)


def _request(progress: AnswerProgress, sampling: Sampling) -> GenerateRequest:
    return GenerateRequest(
        token_ids=progress.next_prompt,
        max_tokens=progress.num_remaining,
        temperature=sampling.temperature,
        stop_token_ids=sampling.stop_token_ids,
        asked=progress.asked,
        num_answered=progress.num_tokens,
    )
