"""Time that is not the agent's own never becomes a reward: judges, set-up and services have limits of their own."""

import asyncio
from uuid import UUID

import pytest

from seamlessflow.core.environment.episodes import (
    BrokenEpisode,
    Environment,
    Outcome,
    PolicyEndpoint,
    RewardFunction,
    Task,
)
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents.episode import run_episode
from seamlessflow_workers.agents.rewards.graded import GradedEnvironment

TIMEOUT_S = 0.3


class Answers:
    """An agent that needs `own_s`, after `before` has run."""

    def __init__(self, own_s: float = 0.0, *, outcome: Outcome | None = None) -> None:
        self._own_s = own_s
        self._outcome = outcome or Outcome(0.0, answer="4")

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        await asyncio.sleep(self._own_s)
        return self._outcome

    async def close(self) -> None:
        """Nothing to close."""


class Judge:
    def __init__(self, needs_s: float = 0.0, *, error: Exception | None = None) -> None:
        self._needs_s, self._error = needs_s, error

    async def grade(self, task: Task, answer: str) -> float:
        await asyncio.sleep(self._needs_s)
        if self._error is not None:
            raise self._error
        return 1.0

    async def close(self) -> None:
        """Nothing to close."""


async def finish_of(environment: Environment, **options: object) -> SessionFinish:
    async def held_s(session_id: UUID) -> float:
        return 0.0

    policy = PolicyEndpoint(base_url="http://nowhere/v1", api_key="k")
    return await run_episode(
        environment,
        {},
        policy,
        session_id=UUID(int=1),
        timeout_s=TIMEOUT_S,
        waited_s=held_s,
        **options,  # type: ignore[arg-type]
    )


def judged(judge: RewardFunction, agent: Environment | None = None) -> Environment:
    return GradedEnvironment(agent or Answers(), judge)


async def test_the_time_of_a_slow_judge_is_not_charged_to_the_agent() -> None:
    finish = await finish_of(judged(Judge(needs_s=TIMEOUT_S * 3)))
    assert (finish.reward, finish.is_timeout) == (1.0, False)


async def test_an_agent_that_takes_too_long_before_its_grading_has_timed_out() -> None:
    finish = await finish_of(judged(Judge(), Answers(own_s=30.0)))
    assert (finish.reward, finish.is_timeout) == (0.0, True)


@pytest.mark.parametrize("option, stage", [("grading_timeout_s", "grading"), ("setup_timeout_s", "setup")])
async def test_a_stage_that_hangs_is_a_failure_of_its_own_kind(option: str, stage: str) -> None:
    from seamlessflow.core.environment import stages

    class Hangs(Answers):
        async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
            with stages.stage(stages.Stage(stage)):
                await asyncio.sleep(30.0)
            raise AssertionError("it went on")

    finish = await finish_of(Hangs(), rules=rules(**{option: 0.2}))

    assert finish.reward is None
    assert not finish.is_timeout
    assert finish.failure_kind == stage
    assert f"0.2 s (environment.{option})" in (finish.failure or "")


@pytest.mark.parametrize("error", [BrokenEpisode("no such case"), OSError("the judge is away")])
async def test_an_error_of_the_judge_is_a_failure_of_the_grading(error: Exception) -> None:
    finish = await finish_of(judged(Judge(error=error)))
    assert (finish.reward, getattr(finish, "failure_kind", "")) == (None, "grading")


@pytest.mark.parametrize(
    "on_timeout, reward, is_timeout, failure_kind",
    [("zero", 0.0, True, None), ("mask", None, True, "timeout"), ("drop", None, False, "timeout")],
)
async def test_the_spec_says_what_a_timeout_means(
    on_timeout: str, reward: float | None, is_timeout: bool, failure_kind: str | None
) -> None:
    finish = await finish_of(Answers(own_s=30.0), rules=rules(on_timeout=on_timeout))
    assert (finish.reward, finish.is_timeout) == (reward, is_timeout)
    assert (finish.failure is None) == (failure_kind is None)
    assert failure_kind is None or finish.failure_kind == failure_kind


async def test_a_timeout_that_the_environment_reports_means_the_same() -> None:
    gave_up = Answers(outcome=Outcome(0.5, is_timeout=True))
    assert (await finish_of(gave_up)).reward == 0.5
    assert (await finish_of(gave_up, rules=rules(on_timeout="mask"))).reward is None


async def test_services_that_are_awaited_at_once_stop_the_clock_until_the_last_has_answered() -> None:
    from seamlessflow.core.environment import stages

    async def service(needs_s: float) -> None:
        with stages.stage(stages.Stage.WAITING):
            await asyncio.sleep(needs_s)

    class Asks(Answers):
        async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
            await asyncio.gather(service(0.1), service(TIMEOUT_S * 2), service(0.2))
            await asyncio.sleep(TIMEOUT_S / 3)
            return Outcome(1.0)

    assert (await finish_of(Asks())).reward == 1.0


def rules(**fields: object) -> object:
    from seamlessflow.core.environment.section import EnvironmentSection
    from seamlessflow_workers.agents.episode import EpisodeRules

    return EpisodeRules.of(EnvironmentSection.model_validate({"name": "external", **fields}))
