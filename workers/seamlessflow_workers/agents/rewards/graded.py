"""An environment whose outcomes are graded by a separate reward function, whose time is not the agent's."""

import dataclasses

from seamlessflow.core.environment.episodes import (
    BrokenEpisode,
    Environment,
    Outcome,
    PolicyEndpoint,
    RewardFunction,
    Task,
)
from seamlessflow.core.environment.stages import Stage, stage
from seamlessflow.core.types.rewards import reward_read


def _graded(reward: object) -> float:
    """Return a reward as a number. Raises BrokenEpisode: what a judge gives is its own fault, not the agent's."""
    try:
        return reward_read(reward)
    except ValueError as error:
        raise BrokenEpisode(f"the reward function's {error}") from error


class GradedEnvironment:
    """The outcome keeps its metrics; a session that ran out of time or gave no answer keeps its own reward."""

    def __init__(self, environment: Environment, reward: RewardFunction) -> None:
        self._environment = environment
        self._reward = reward

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        outcome = await self._environment.run(task, policy)
        if outcome.is_timeout:
            return outcome
        if outcome.answer is None:
            raise BrokenEpisode("the environment gave no answer that the reward function could grade")
        with stage(Stage.GRADING):
            reward = _graded(await self._reward.grade(task, outcome.answer))
        return dataclasses.replace(outcome, reward=reward)

    async def close(self) -> None:
        try:
            await self._environment.close()
        finally:
            await self._reward.close()
