"""Runs one session in its environment and returns how it ended.

Whatever an agent does becomes a `SessionFinish`: an outcome, the task's own timeout (an outcome of 0), or a failure.
Invariant: the task's clock stops while the gateway holds a turn of the session, and while this process itself is
stopped; an agent is never charged for an update, a hand-over, a pause or a stopped machine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from seamlessflow.core.environment.episodes import (
    BrokenEpisode,
    Environment,
    Outcome,
    PolicyEndpoint,
    Task,
)
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow.core.types.rewards import reward_problem
from seamlessflow_workers.clients.http import FencedOff, RequestRefused

MAX_FAILURE_CHARACTERS = 2000
LEAST_WAIT_S = 0.5  # between two requests for the time that a session was held
SLICE_S = 1.0
LATE_S = 0.5  # if a slice takes longer than its time plus this, the process was stopped; then only this much counts

HeldSeconds = Callable[[UUID], Awaitable[float]]
logger = logging.getLogger(__name__)


async def run_episode(
    environment: Environment,
    task: Task,
    policy: PolicyEndpoint,
    *,
    session_id: UUID,
    timeout_s: float,
    held_s: HeldSeconds,
) -> SessionFinish:
    """Run a session. `held_s` returns how long the gateway held its turns; it is called only when time seems up."""
    work = asyncio.create_task(environment.run(task, policy))
    try:
        if not await _ended_in_time(work, session_id, timeout_s, held_s):
            return SessionFinish(session_id=session_id, reward=0.0, is_timeout=True)
        outcome = work.result()
        if problem := reward_problem(outcome.reward):
            raise BrokenEpisode(problem)
    except BrokenEpisode as error:
        return _failed(session_id, str(error))
    except Exception as error:
        logger.warning("session %s failed", session_id, exc_info=True)
        return _failed(session_id, f"{type(error).__name__}: {error}")
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return SessionFinish(
        session_id=session_id,
        reward=outcome.reward,
        is_timeout=outcome.is_timeout,
        metrics=dict(outcome.metrics),
    )


async def _ended_in_time(
    work: asyncio.Task[Outcome], session_id: UUID, timeout_s: float, held_s: HeldSeconds
) -> bool:
    """Return whether `work` ended in time, not counting the time for which the gateway held its turns."""
    spent_s, limit_s = 0.0, timeout_s
    while True:
        while spent_s < limit_s:
            spent_s += await _spend(work, min(SLICE_S, limit_s - spent_s))
            if work.done():
                return True
        held_so_far_s = await _held_so_far(session_id, held_s)
        if spent_s >= timeout_s + held_so_far_s:
            return work.done()
        limit_s = max(timeout_s + held_so_far_s, spent_s + LEAST_WAIT_S)


async def _spend(work: asyncio.Task[Outcome], slice_s: float) -> float:
    """Wait for `work`, at most one slice, and return the seconds that count."""
    now_s = asyncio.get_running_loop().time
    began_s = now_s()
    await asyncio.wait({work}, timeout=slice_s)
    elapsed_s = now_s() - began_s
    return elapsed_s if elapsed_s <= slice_s + LATE_S else LATE_S


async def _held_so_far(session_id: UUID, held_s: HeldSeconds) -> float:
    try:
        return await held_s(session_id)
    except (FencedOff, RequestRefused) as error:
        logger.warning(
            "the clock of session %s goes on, because the gateway did not report its held time: %s",
            session_id,
            error,
        )
        return 0.0


def _failed(session_id: UUID, reason: str) -> SessionFinish:
    return SessionFinish(session_id=session_id, failure=reason[:MAX_FAILURE_CHARACTERS])
