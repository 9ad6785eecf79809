"""A task's clock counts neither what the gateway held nor time in which the runner itself stood still."""

import asyncio
import time
from uuid import UUID

from seamlessflow.core.environment.episodes import Outcome, PolicyEndpoint, Task
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents.episode import run_episode

TIMEOUT_S = 2.0


class Steps:
    """Needs half of its time, in small steps; at the first one the whole process may stand still."""

    def __init__(self, *, standstill_s: float = 0.0, step_s: float = TIMEOUT_S / 20) -> None:
        self._standstill_s = standstill_s
        self._step_s = step_s

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        time.sleep(self._standstill_s)  # noqa: ASYNC251 - as SIGSTOP does
        for _ in range(10):
            await asyncio.sleep(self._step_s)
        return Outcome(reward=1.0)

    async def close(self) -> None:
        """Nothing to close."""


async def finish_of(environment: Steps) -> SessionFinish:
    async def held_s(session_id: UUID) -> float:
        return 0.0

    policy = PolicyEndpoint(base_url="http://nowhere/v1", api_key="k")
    return await run_episode(
        environment, {}, policy, session_id=UUID(int=1), timeout_s=TIMEOUT_S, waited_s=held_s
    )


async def test_runner_that_was_stopped_does_not_charge_the_task_for_it() -> None:
    finish = await finish_of(Steps(standstill_s=TIMEOUT_S + 1.0))
    assert (finish.reward, finish.is_timeout) == (1.0, False)


async def test_task_that_takes_too_long_still_ends_as_a_timeout() -> None:
    finish = await finish_of(Steps(step_s=TIMEOUT_S))
    assert (finish.reward, finish.is_timeout) == (0.0, True)
