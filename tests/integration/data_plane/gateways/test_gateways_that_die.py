"""64 agents at two and three gateways, one of which is killed again and again: nothing is lost, doubled or charged."""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import openai
import pytest

from seamlessflow.core.environment.episodes import PolicyEndpoint
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from seamlessflow_workers.agents.environments.policy_client import PolicyClient
from tests.fakes.scripted_engine import ScriptedEngine
from tests.fixtures.gateway_fleet import GatewayFleet
from tests.fixtures.gateway_world import GatewayWorld

NUM_GROUPS, GROUP_SIZE = 8, 8
NUM_TURNS = 12
NUM_KILLS = 3
PAUSE_S = 2.0  # between a gateway's return and the next kill
STEP_S = 0.03  # per token: an answer takes more than half a second
JOB: dict[str, Any] = {
    "rollout": {"group_size": GROUP_SIZE, "groups_per_batch": NUM_GROUPS, "max_num_seqs": 64},
    "model": {"max_model_len": 4096},
    "num_tasks": NUM_GROUPS,
}


def script(prompt: str) -> str:
    """Answer with the question, which no other turn asks."""
    question = prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    return f"you said {question}<|im_end|>"


@dataclass(slots=True)
class Agent:
    """One session and what its agent saw; every second one speaks through the OpenAI SDK."""

    number: int
    session: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def answers(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "assistant"]

    async def work(self, client: PolicyClient) -> None:
        policy = PolicyEndpoint(base_url=self.session["base_url"], api_key=self.session["api_key"])
        async with openai.AsyncOpenAI(
            base_url=policy.base_url, api_key=policy.api_key, max_retries=8
        ) as openai_client:
            for turn in range(NUM_TURNS):
                self.messages.append({"role": "user", "content": f"agent {self.number} turn {turn}"})
                if self.number % 2:
                    content = (await client.ask(policy, self.messages)).content
                else:
                    content = await _asked(openai_client, self.messages)
                self.messages.append({"role": "assistant", "content": content})


async def _asked(client: openai.AsyncOpenAI, messages: list[Any]) -> str:
    answer = await client.chat.completions.create(model="tiny", messages=messages)
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize("num_gateways", [2, 3])
@pytest.mark.timeout(180)
async def test_nothing_is_lost_or_doubled(gateway_fleet: GatewayFleet, num_gateways: int) -> None:
    fleet, world = gateway_fleet, gateway_fleet.world
    world.make_job(**JOB)
    engine = await world.start_engine(script)
    engine.step_s = STEP_S
    await fleet.start(num_gateways)
    runner = world.make_phase(Role.AGENT)
    leased = [
        session
        for group in await world.lease(runner, max_sessions=NUM_GROUPS * GROUP_SIZE)
        for session in group["sessions"]
    ]
    agents = [Agent(number, session) for number, session in enumerate(leased)]
    assert len(agents) == NUM_GROUPS * GROUP_SIZE

    client = PolicyClient()
    killing = asyncio.create_task(_kill_in_turn(fleet, engine))
    try:
        await asyncio.gather(*(agent.work(client) for agent in agents))
    finally:
        await client.close()
    assert min(await killing) > 0, "each gateway dies at work"

    for agent in agents:
        _check(world, agent)
    await _report(world, runner, agents)
    _check_outcomes(world, agents)


async def _kill_in_turn(fleet: GatewayFleet, engine: ScriptedEngine) -> list[int]:
    """Return how many turns were in the making at each kill."""
    busy = []

    async def are_busy() -> bool:
        return engine.num_in_flight >= NUM_GROUPS

    await fleet.world.until(are_busy, what="the agents to be at work")
    for gateway in itertools.islice(itertools.cycle(fleet.gateways), NUM_KILLS):
        await asyncio.sleep(PAUSE_S)
        busy.append(engine.num_in_flight)
        fleet.kill(gateway)
        await fleet.revive(gateway)
    return busy


def _check(world: GatewayWorld, agent: Agent) -> None:
    """Compare what is recorded with what the agent saw: one chain of turns, each with its tokens and logprobs."""
    expected = [f"you said agent {agent.number} turn {turn}" for turn in range(NUM_TURNS)]
    assert agent.answers == expected
    rows = world.sql(
        """SELECT kind, parent_index, messages, num_tokens, token_ids, logprobs, is_partial, drift
           FROM trajectory_node WHERE session_id = %s ORDER BY node_index""",
        [UUID(agent.session["session_id"])],
    )
    assert [row[0] for row in rows] == [0, 2] + [1, 2] * (NUM_TURNS - 1)
    assert [row[1] for row in rows] == [None, *range(len(rows) - 1)], "no turn forked"
    sampled = [row for row in rows if row[0] == 2]
    assert [row[2][0]["content"] for row in sampled] == expected
    assert not any(row[6] for row in rows)
    assert {row[7] for row in rows if row[0] != 2} == {"clean"}
    for _, _, _, num_tokens, ids, logprobs, _, _ in sampled:
        assert len(np.frombuffer(unpacked(ids), dtype="<i4")) == num_tokens
        assert len(np.frombuffer(unpacked(logprobs), dtype="<f4")) == num_tokens


async def _report(world: GatewayWorld, runner: PhaseClaims, agents: list[Agent]) -> None:
    finishes = [
        {"session_id": agent.session["session_id"], "reward": agent.number / len(agents)} for agent in agents
    ]
    status, raw = await world.phase_post(runner, "/runner/v1/sessions/ended", {"finishes": finishes})
    assert (status, json.loads(raw)["refused"]) == (200, {})


def _check_outcomes(world: GatewayWorld, agents: list[Agent]) -> None:
    """No session failed, timed out or ran twice, and each has the reward that its own agent got."""
    rows = world.sql("SELECT id, state, reward, is_timeout, is_requeued, num_turns FROM trajectory_session")
    assert {str(row[0]): row[1:] for row in rows} == {
        agent.session["session_id"]: ("closed", agent.number / len(agents), False, False, NUM_TURNS)
        for agent in agents
    }
    assert world.sql("SELECT state, count(*) FROM trajectory_group GROUP BY state") == [("ready", NUM_GROUPS)]
