"""One session: runs the environment and says how it ended.

Whatever an agent does becomes a `SessionFinish`: a verdict, the task's own timeout (a verdict of 0), or a failure.
"""

import asyncio
import logging
from uuid import UUID

from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents.environments.base import BrokenEpisode, Environment, PolicyEndpoint, Task

MAX_FAILURE_CHARACTERS = 2000

logger = logging.getLogger(__name__)


async def run_episode(
    environment: Environment, task: Task, policy: PolicyEndpoint, *, session_id: UUID, timeout_s: float
) -> SessionFinish:
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            verdict = await environment.run(task, policy)
    except BrokenEpisode as error:
        return _failed(session_id, str(error))
    except Exception as error:
        if deadline.expired():
            return SessionFinish(session_id=session_id, reward=0.0, is_timeout=True)
        logger.warning("session %s broke", session_id, exc_info=True)
        return _failed(session_id, f"{type(error).__name__}: {error}")
    return SessionFinish(
        session_id=session_id,
        reward=verdict.reward,
        is_timeout=verdict.is_timeout,
        metrics=dict(verdict.metrics),
    )


def _failed(session_id: UUID, reason: str) -> SessionFinish:
    return SessionFinish(session_id=session_id, failure=reason[:MAX_FAILURE_CHARACTERS])
