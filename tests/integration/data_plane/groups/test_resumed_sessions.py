"""A session that failed without its agent's fault goes on after its recorded answers, which nobody samples again."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.environment.episodes import BrokenEpisode, Outcome, PolicyEndpoint
from seamlessflow.core.environment.section import EnvironmentSection
from seamlessflow.core.extensions.declarations import EnvironmentContext, ExtensionOptions
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL
from seamlessflow_workers.agents.environments.calculator import create
from tests.fixtures.gateway_world import GatewayWorld

TASK = {"question": "What is 2*3*4?", "answer": "24"}
NUM_CALLS = 3


class Policy:
    """Calls the tool with another number at each sampling, then answers with how often it was asked."""

    def __init__(self) -> None:
        self.num_sampled = 0

    def __call__(self, prompt: str) -> str:
        self.num_sampled += 1
        if prompt.count("<|im_start|>tool") < NUM_CALLS:
            call = {"name": "calc", "arguments": {"expression": f"{self.num_sampled}*10"}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
        return f"{self.num_sampled}<|im_end|>"


async def run_calculator(world: GatewayWorld, api_key: str, *, max_turns: int = 8) -> Outcome:
    """Run an episode; fewer turns than it needs leave it unfinished."""
    section = EnvironmentSection(name="calculator", tasks="tasks.jsonl", max_turns=max_turns)
    environment = create(EnvironmentContext(section=section, options=ExtensionOptions()))
    try:
        return await environment.run(TASK, PolicyEndpoint(f"{world.base_url}/v1", api_key))
    finally:
        await environment.close()


async def started(world: GatewayWorld, policy: Policy, **fields: Any) -> PhaseClaims:
    await world.start_engines(policy, environment="calculator", environment_fields=fields)
    return world.make_phase(Role.AGENT)


async def leased(world: GatewayWorld, agent: PhaseClaims) -> dict[str, Any]:
    (group,) = await world.lease(agent, max_sessions=1)
    session: dict[str, Any] = group["sessions"][0]
    return session


def sampled(world: GatewayWorld, session_id: str) -> list[tuple[Any, ...]]:
    return world.sql(
        """SELECT token_ids, logprobs, version_spans, flags ? 'resumed' FROM trajectory_node
           WHERE session_id = %s AND kind = 2 ORDER BY node_index""",
        [session_id],
    )


async def test_a_failed_calculator_session_goes_on_after_its_answers(gateway_world: GatewayWorld) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy)
    first = await leased(world, agent)
    await run_calculator(world, first["api_key"], max_turns=2)
    await world.finish(agent, first["session_id"], failure="the machine is gone", failure_kind="machine")
    world.engines[0].version = 1
    world.set_served_version(1)
    world.sql("SELECT pg_notify('sf_engines', %s)", [str(world.job_id)])

    second = await leased(world, agent)
    outcome = await run_calculator(world, second["api_key"])
    assert second["attempt"] == 2
    assert outcome.answer == "4", "an answer that was recorded was sampled again"
    assert outcome.metrics["num_tool_calls"] == NUM_CALLS

    before, after = sampled(world, first["session_id"]), sampled(world, second["session_id"])
    assert [row[:3] for row in after[:2]] == [row[:3] for row in before], (
        "tokens, logprobs or versions differ"
    )
    assert [row[3] for row in after] == [True, True, False, False]
    assert after[0][2] == [0, 0]
    assert after[2][2] == [0, 1], "what was sampled later has not its own version"

    await world.finish(agent, second["session_id"], reward=1.0)
    other = await leased(world, agent)
    await run_calculator(world, other["api_key"])
    await world.finish(agent, other["session_id"], reward=0.0)
    trainer = world.make_phase(Role.TRAIN)
    request = {"applied_batch": 0, "durable_batch": 0, "policy_version": 1, "wait_s": 5.0}
    _, payload = await world.phase_post(trainer, "/trainer/v1/batches/lease", request)
    metrics = batch_decode(payload).header.metrics
    assert (metrics["rollout/num_failed/machine"], metrics["rollout/num_failed_resumed"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "fields, failure_kind",
    [({}, "agent"), ({"on_failure": "sample"}, "machine")],
    ids=["what the agent broke", "a spec that says so"],
)
async def test_is_sampled_anew(
    gateway_world: GatewayWorld, fields: dict[str, str], failure_kind: str
) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy, **fields)
    first = await leased(world, agent)
    await run_calculator(world, first["api_key"], max_turns=2)
    await world.finish(agent, first["session_id"], failure="it broke", failure_kind=failure_kind)

    second = await leased(world, agent)
    assert (await run_calculator(world, second["api_key"])).answer == "6"
    assert [row[3] for row in sampled(world, second["session_id"])] == [False] * 4


async def test_attempts_that_fail_while_they_resume_lose_nothing(gateway_world: GatewayWorld) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy)
    for num_turns in (3, 1, 2):
        session = await leased(world, agent)
        await run_calculator(world, session["api_key"], max_turns=num_turns)
        await world.finish(agent, session["session_id"], failure="no judge", failure_kind="grading")
    last, messages = await leased(world, agent), [{"role": "user", "content": TASK["question"]}]
    for num_turns in range(1, NUM_CALLS + 2):
        answer = await world.chat(last["api_key"], messages, tools=[CALC_TOOL])
        message = answer["choices"][0]["message"]
        messages += [message] + [
            {"role": "tool", "tool_call_id": call["id"], "content": f"{num_turns}0"}
            for call in message.get("tool_calls") or []
        ]
        if num_turns == 1:
            world.kill_gateway()  # the next one reads from the rows what was given and what is left
            await world.start_gateway()
    assert message["content"] == "4"
    assert policy.num_sampled == NUM_CALLS + 1


async def test_another_request_is_sampled_and_leaves_the_recorded_answers_alone(
    gateway_world: GatewayWorld,
) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy)
    first = await leased(world, agent)
    asked = [{"role": "user", "content": "What is 1+1?"}]
    answer = await world.chat(first["api_key"], asked)
    await world.finish(agent, first["session_id"], failure="no judge", failure_kind="grading")

    second = await leased(world, agent)
    other = await world.chat(second["api_key"], [{"role": "user", "content": "What is 1+2?"}])
    penalised = await world.chat(second["api_key"], asked, presence_penalty=1.0)
    same = await world.chat(second["api_key"], asked)
    repeated = await world.chat(second["api_key"], asked)
    messages = [
        each["choices"][0]["message"]["content"] for each in (answer, other, penalised, same, repeated)
    ]
    assert messages[3] == messages[0]
    assert len(set(messages)) == 4


async def test_an_unfinished_answer_is_continued(gateway_world: GatewayWorld) -> None:
    world, policy = gateway_world, Policy()
    # Answers of so many tokens are streamed by engines, so what was sampled is here when one is lost.
    await world.start_engines(
        policy,
        environment="calculator",
        model={"max_model_len": 4096},
        rollout={"max_tokens_per_turn": 2048},
    )
    agent = world.make_phase(Role.AGENT)
    engine = world.engines[0]
    engine.freeze_after = 5
    first = await leased(world, agent)
    running = asyncio.create_task(run_calculator(world, first["api_key"], max_turns=1))

    async def is_frozen() -> bool:
        return engine.is_frozen

    await world.until(is_frozen, what="five tokens")
    await world.finish(agent, first["session_id"], failure="its machine is gone", failure_kind="machine")
    with pytest.raises(BrokenEpisode):
        await running
    engine.thaw()

    second = await leased(world, agent)
    await run_calculator(world, second["api_key"], max_turns=1)
    ((num_tokens,),) = world.sql("SELECT num_sampled_tokens FROM trajectory_session WHERE attempt = 2")
    assert engine.num_sampled == num_tokens, "tokens were sampled twice"


def in_the_making(world: GatewayWorld, num: int, *, num_requests: int = 1) -> Callable[[], Awaitable[bool]]:
    engine = world.engines[0]

    async def is_so() -> bool:
        return engine.num_requests >= num_requests and engine.num_in_flight == num

    return is_so


async def lose_agent(world: GatewayWorld, api_key: str, *, after: int = 0) -> None:
    """Run an episode, and lose its machine while its next answer is being sampled, which comes whole."""
    running = asyncio.create_task(run_calculator(world, api_key))
    await world.until(in_the_making(world, 1, num_requests=after + 1), what="an answer in the making")
    running.cancel()
    await asyncio.wait([running])


async def test_the_next_attempt_joins_an_answer_that_is_still_being_sampled(
    gateway_world: GatewayWorld,
) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy)
    engine = world.engines[0]
    engine.freeze_after = 2
    session = await leased(world, agent)
    await lose_agent(world, session["api_key"])
    for attempt in (2, 3):  # an attempt that is lost before it asks changes nothing
        world.end_phase(agent, "failed")
        agent = world.make_phase(Role.AGENT)
        session = await leased(world, agent)
        assert session["attempt"] == attempt
    asking = asyncio.create_task(run_calculator(world, session["api_key"]))
    asyncio.get_running_loop().call_later(0.3, engine.thaw)

    assert (await asking).answer == str(NUM_CALLS + 1), "an answer was sampled twice"
    ((num_tokens,),) = world.sql("SELECT num_sampled_tokens FROM trajectory_session WHERE attempt = 3")
    assert engine.num_sampled == num_tokens
    assert engine.num_requests == NUM_CALLS + 1


async def test_an_answer_without_an_agent_is_kept_through_attempts_that_do_not_come_to_it(
    gateway_world: GatewayWorld,
) -> None:
    world, policy = gateway_world, Policy()
    agent = await started(world, policy)
    world.engines[0].step_s = 0.02
    first = await leased(world, agent)
    await lose_agent(world, first["api_key"], after=2)
    await world.until(in_the_making(world, 0), what="the answer to be whole")
    await world.finish(agent, first["session_id"], failure="it is lost", failure_kind="machine")
    second = await leased(world, agent)
    await run_calculator(world, second["api_key"], max_turns=1)
    await world.finish(agent, second["session_id"], failure="it is lost", failure_kind="machine")

    third = await leased(world, agent)
    assert (await run_calculator(world, third["api_key"])).answer == str(NUM_CALLS + 1)
    assert world.engines[0].num_requests == NUM_CALLS + 1, "an answer was sampled twice"


@pytest.mark.parametrize("end", ["cancelled", "reward", "agent"])
async def test_an_answer_that_no_attempt_will_ask_for_is_aborted_at_once(
    gateway_world: GatewayWorld, end: str
) -> None:
    world, num_words = gateway_world, 150
    await world.start_engines(lambda _: "1 " * num_words + "<|im_end|>", environment="calculator")
    agent, engine = world.make_phase(Role.AGENT), world.engines[0]
    engine.step_s = 0.03
    session = await leased(world, agent)
    await lose_agent(world, session["api_key"])
    num_before = engine.num_sampled

    async def goes_on() -> bool:
        return engine.num_sampled > num_before + 10

    await world.until(goes_on, what="tokens after the agent was lost")
    assert engine.num_in_flight == 1
    if end == "cancelled":
        world.sql("UPDATE jobs_job SET state = 'cancelled' WHERE id = %s", [world.job_id])
        world.sql("SELECT pg_notify('sf_engines', %s)", [str(world.job_id)])
    elif end == "reward":
        await world.finish(agent, session["session_id"], reward=0.0)
    else:
        await world.finish(agent, session["session_id"], failure="it broke", failure_kind="agent")
    await world.until(in_the_making(world, 0), what="the engine to be idle")
    assert engine.num_sampled < num_words
