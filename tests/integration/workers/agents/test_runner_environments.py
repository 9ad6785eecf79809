"""The environments that ask the policy themselves, against an endpoint on a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from seamlessflow.core.environment.episodes import BrokenEpisode, Environment, PolicyEndpoint
from seamlessflow.core.job_spec import EnvironmentSection
from seamlessflow_workers.agents.environments import policy_client
from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL
from seamlessflow_workers.agents.environments.registry import NotRunHere, environment_create
from tests.fixtures.runner_gateway import (
    FakeGateway,
    Messages,
    honest_policy,
    running_gateway,
    tool_call,
)

TASK = {"question": "What is 285*966?", "answer": "275310"}


@contextlib.asynccontextmanager
async def environment_at(gateway: FakeGateway, section: EnvironmentSection) -> AsyncIterator[Environment]:
    environment = environment_create(section)
    try:
        yield environment
    finally:
        await environment.close()


def calculator(*, max_turns: int = 4) -> EnvironmentSection:
    return EnvironmentSection(name="calculator", tasks="tasks.jsonl", max_turns=max_turns)


def policy_at(gateway: FakeGateway, api_key: str = "key-1") -> PolicyEndpoint:
    return PolicyEndpoint(base_url=f"{gateway.url}/v1", api_key=api_key)


async def test_calculator_calls_the_tool_and_rewards_the_exact_answer() -> None:
    async with running_gateway() as gateway, environment_at(gateway, calculator()) as environment:
        outcome = await environment.run(TASK, policy_at(gateway))
        assert outcome.reward == 1.0
        assert outcome.metrics == {"num_turns": 2, "num_tool_calls": 1}
        first, second = gateway.requests_seen
        assert first["model"] == "policy"
        assert first["tools"] == [CALC_TOOL]
        assert second["messages"][0] == {"role": "user", "content": "What is 285*966?"}
        assert second["messages"][1]["tool_calls"][0]["function"]["name"] == "calc"
        assert second["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "275310"}


async def test_a_wrong_answer_earns_nothing() -> None:
    async with (
        running_gateway(lambda _: {"role": "assistant", "content": "275311"}) as gateway,
        environment_at(gateway, calculator()) as environment,
    ):
        outcome = await environment.run(TASK, policy_at(gateway))
        assert outcome.reward == 0.0
        assert outcome.metrics["num_turns"] == 1


@pytest.mark.parametrize("expression", ["285**966", "__import__('os')", "285*", '"', "1*2*3"])
async def test_a_call_that_is_no_expression_is_answered_with_an_error(expression: str) -> None:
    def insists(messages: Messages) -> dict[str, object]:
        is_told = messages[-1]["role"] == "tool"
        return (
            {"role": "assistant", "content": messages[-1]["content"]}
            if is_told
            else dict(tool_call(expression))
        )

    async with running_gateway(insists) as gateway, environment_at(gateway, calculator()) as environment:
        outcome = await environment.run(TASK, policy_at(gateway))
        assert outcome.reward == 0.0
        assert gateway.requests_seen[-1]["messages"][-1]["content"] == "error"


async def test_an_agent_that_only_calls_ends_after_its_turns_with_nothing() -> None:
    async with (
        running_gateway(lambda _: tool_call("1*2")) as gateway,
        environment_at(gateway, calculator(max_turns=3)) as environment,
    ):
        outcome = await environment.run(TASK, policy_at(gateway))
        assert outcome.reward == 0.0
        assert len(gateway.requests_seen) == 3


async def test_sessions_side_by_side_keep_their_own_keys() -> None:
    async with running_gateway() as gateway, environment_at(gateway, calculator()) as environment:
        keys = [f"key-{number}" for number in range(20)]
        outcomes = await asyncio.gather(*(environment.run(TASK, policy_at(gateway, key)) for key in keys))
        assert [outcome.reward for outcome in outcomes] == [1.0] * 20
        assert sorted(gateway.keys_seen) == sorted(keys * 2)


async def test_arithmetic_is_one_turn_without_tools() -> None:
    section = EnvironmentSection(name="arithmetic", tasks="tasks.jsonl")
    task = {"question": "What is 7+5?", "answer": "12"}
    async with (
        running_gateway(lambda _: {"role": "assistant", "content": " 12 "}) as gateway,
        environment_at(gateway, section) as environment,
    ):
        outcome = await environment.run(task, policy_at(gateway))
        assert outcome.reward == 1.0
        assert "tools" not in gateway.requests_seen[0]


async def test_a_gateway_restart_is_ridden_out_by_marked_retries() -> None:
    async with running_gateway() as gateway, environment_at(gateway, calculator()) as environment:
        await environment.run(TASK, policy_at(gateway))
        await gateway.stop()
        episode = asyncio.create_task(environment.run(TASK, policy_at(gateway)))
        await asyncio.wait({episode}, timeout=0.3)
        assert not episode.done()
        await gateway.start()
        outcome = await episode
        assert outcome.reward == 1.0
        assert gateway.num_retries > 0


async def test_a_refused_request_is_no_outcome() -> None:
    def refuses(messages: Messages) -> dict[str, object]:
        raise refusal()

    async with running_gateway(refuses) as gateway, environment_at(gateway, calculator()) as environment:
        with pytest.raises(BrokenEpisode, match="status 400: no"):
            await environment.run(TASK, policy_at(gateway))


async def test_what_may_pass_is_tried_again_with_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_client, "FIRST_PAUSE_S", 0.0)
    statuses = [503, 429, 409, 408]

    def overloaded(messages: Messages) -> dict[str, object]:
        if statuses:
            raise refusal(statuses.pop())
        return dict(honest_policy(messages))

    async with running_gateway(overloaded) as gateway, environment_at(gateway, calculator()) as environment:
        outcome = await environment.run(TASK, policy_at(gateway))
        assert outcome.reward == 1.0
        assert gateway.num_retries == 4
        assert gateway.requests_seen[0] == gateway.requests_seen[4]


async def test_a_policy_that_never_answers_breaks_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_client, "MAX_RETRIES", 2)
    monkeypatch.setattr(policy_client, "FIRST_PAUSE_S", 0.0)

    def overloaded(messages: Messages) -> dict[str, object]:
        raise refusal(503)

    async with running_gateway(overloaded) as gateway, environment_at(gateway, calculator()) as environment:
        with pytest.raises(BrokenEpisode, match="did not answer: status 503: no"):
            await environment.run(TASK, policy_at(gateway))
        assert gateway.num_retries == 2


def refusal(status: int = 400) -> Exception:
    from aiohttp import web

    class Refusal(web.HTTPException):
        status_code = status

    return Refusal(text='{"error": {"message": "no"}}', content_type="application/json")


async def test_external_agents_are_not_run_here() -> None:
    with pytest.raises(NotRunHere, match="external"):
        environment_create(EnvironmentSection(name="external"))
