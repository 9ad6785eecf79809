"""A named reward function grades the answer of an environment; what is not installed is refused by name."""

from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pytest

from seamlessflow.core.environment.episodes import BrokenEpisode, Environment, Outcome, PolicyEndpoint, Task
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.environment.section import EnvironmentSection
from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.core.extensions.declarations import EnvironmentExtension, Extensions
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow.runtime.extensions import UnusableExtension
from seamlessflow_workers.agents.environments.registry import environment_create
from seamlessflow_workers.agents.episode import run_episode
from seamlessflow_workers.agents.rewards.exact_answer import ExactAnswer
from seamlessflow_workers.agents.rewards.graded import GradedEnvironment

TASK = {"question": "What is 7+12?", "answer": "19"}
POLICY = PolicyEndpoint(base_url="http://127.0.0.1:1/v1", api_key="key")


class Says:
    """An environment with one outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.is_closed = False

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        return self._outcome

    async def close(self) -> None:
        self.is_closed = True


class Fails(ExactAnswer):
    async def close(self) -> None:
        raise RuntimeError("the judge is away")


async def graded(outcome: Outcome) -> Outcome:
    return await GradedEnvironment(Says(outcome), ExactAnswer()).run(TASK, POLICY)


async def test_the_reward_function_decides_and_the_metrics_stay() -> None:
    outcome = await graded(Outcome(0.25, metrics={"num_turns": 2}, answer=" 19 "))

    assert (outcome.reward, outcome.metrics) == (1.0, {"num_turns": 2})


async def test_a_timeout_keeps_its_own_reward() -> None:
    assert (await graded(Outcome(0.0, is_timeout=True))).reward == 0.0


async def test_without_an_answer_the_episode_is_broken() -> None:
    with pytest.raises(BrokenEpisode, match="gave no answer"):
        await graded(Outcome(1.0))


async def test_a_task_that_cannot_be_graded_breaks_its_episode() -> None:
    with pytest.raises(BrokenEpisode, match="no 'answer' to compare with"):
        await ExactAnswer().grade({"question": "?"}, "19")


async def test_both_are_closed_whatever_happens() -> None:
    inner = Says(Outcome(1.0))
    with pytest.raises(RuntimeError, match="away"):
        await GradedEnvironment(inner, Fails()).close()
    assert inner.is_closed


async def test_a_named_reward_function_is_put_around_the_environment() -> None:
    section = EnvironmentSection(name="arithmetic", tasks="tasks.jsonl", reward="exact_answer")
    environment = environment_create(section, BUILT_IN)
    await environment.close()

    assert isinstance(environment, GradedEnvironment)


@pytest.mark.parametrize(
    "section, words",
    [
        (
            EnvironmentSection(name="chess", tasks="t"),
            r"environment\.name: 'chess' is not installed here; installed: ",
        ),
        (
            EnvironmentSection(name="arithmetic", tasks="t", reward="taste"),
            r"environment\.reward: 'taste' is not installed here; installed: exact_answer",
        ),
        (EnvironmentSection(name="arithmetic", tasks="t", options={"size": 9}), r"environment\.options: "),
    ],
)
async def test_what_this_machine_lacks_is_refused_by_name(section: EnvironmentSection, words: str) -> None:
    with pytest.raises(UnusableExtension, match=words):
        environment_create(section, BUILT_IN)


async def test_a_factory_that_fails_names_its_environment() -> None:
    absent = EnvironmentExtension(summary="", factory="no_such_third_party:create")
    section = EnvironmentSection(name="chess", tasks="tasks.jsonl")

    with pytest.raises(UnusableExtension, match="'chess' could not be created by no_such_third_party:create"):
        environment_create(section, Extensions({"chess": absent}, {}, {}))


class Judges(ExactAnswer):
    """Grades every answer alike."""

    def __init__(self, reward: object) -> None:
        self._reward = reward

    async def grade(self, task: Task, answer: str) -> float:
        return self._reward  # type: ignore[return-value]


async def no_time_held(session_id: UUID) -> float:
    return 0.0


async def finished(environment: Environment) -> SessionFinish:
    return await run_episode(
        environment, TASK, POLICY, session_id=uuid4(), timeout_s=9, waited_s=no_time_held
    )


@pytest.mark.parametrize("reward", [None, "1", float("nan"), float("-inf"), 1e300, [1.0], {"score": 1}, 1j])
async def test_what_is_no_reward_is_the_fault_of_the_judge(reward: object) -> None:
    finish = await finished(GradedEnvironment(Says(Outcome(0.0, answer="19")), Judges(reward)))
    assert (finish.reward, finish.failure_kind) == (None, FailureKind.GRADING)
    assert "must be a number" in (finish.failure or "")


@pytest.mark.parametrize(
    "reward, wanted", [(True, 1.0), (1, 1.0), (Decimal("0.5"), 0.5), (np.float32(0.5), 0.5)]
)
async def test_rewards_of_any_kind_of_number_can_be_reported(reward: object, wanted: float) -> None:
    metrics: dict[str, Any] = {"turns": np.int64(2), "loss": float("nan"), "is_done": True}
    finish = await finished(
        GradedEnvironment(Says(Outcome(0.0, metrics=metrics, answer="19")), Judges(reward))
    )
    try:
        reported: object = msgspec.json.decode(msgspec.json.encode(finish), type=SessionFinish)
    except (TypeError, msgspec.ValidationError) as error:
        reported = error
    assert reported == finish
    assert (finish.reward, finish.metrics) == (wanted, {"turns": 2, "is_done": 1})
