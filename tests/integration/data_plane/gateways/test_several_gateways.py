"""Several gateway processes on one database: a session is answered by its owner, whoever is asked, and outlives it."""

import asyncio
import json
from typing import Any

import openai

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_fleet import FleetGateway, GatewayFleet
from tests.fixtures.gateway_world import GatewayWorld

USER: Any = {"role": "user", "content": "12+34?"}
JOB: dict[str, Any] = {"rollout": {"group_size": 2, "groups_per_batch": 8}, "num_tasks": 8}


def script(prompt: str) -> str:
    return "forty six<|im_end|>"


async def leased(fleet: GatewayFleet) -> list[dict[str, Any]]:
    """Return the sessions of sixteen slots, with the addresses that they are told."""
    groups = await fleet.world.lease(fleet.world.make_phase(Role.AGENT))
    return [session for group in groups for session in group["sessions"]]


def told(fleet: GatewayFleet, session: dict[str, Any]) -> tuple[FleetGateway, FleetGateway]:
    """Return the gateway that a session is told, and another one."""
    owner = next(one for one in fleet.gateways if session["base_url"] == f"{one.url}/v1")
    return owner, next(one for one in fleet.gateways if one is not owner)


async def ask(url: str, session: dict[str, Any], messages: list[Any], **fields: Any) -> str:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=session["api_key"], max_retries=6) as client:
        answer = await client.chat.completions.create(model="tiny", messages=messages, **fields)
    return answer.choices[0].message.content or ""


async def stream(url: str, session: dict[str, Any]) -> str:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=session["api_key"], max_retries=0) as client:
        chunks = await client.chat.completions.create(model="tiny", messages=[USER], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


async def begin(fleet: GatewayFleet, num_gateways: int, **job: Any) -> Any:
    world = fleet.world
    world.make_job(**(JOB | job))
    engine = await world.start_engine(script)
    await fleet.start(num_gateways)
    return engine


async def test_sessions_are_spread_and_answered_whoever_is_asked(gateway_fleet: GatewayFleet) -> None:
    fleet = gateway_fleet
    await begin(fleet, 2)
    sessions = await leased(fleet)
    assert {session["base_url"] for session in sessions} == {f"{one.url}/v1" for one in fleet.gateways}

    for session in sessions[:4]:
        owner, other = told(fleet, session)
        assert await ask(owner.url, session, [USER]) == "forty six"
        assert await ask(other.url, session, [USER, {"role": "user", "content": "?"}]) == "forty six"
        assert await stream(other.url, session) == "forty six"

    turns = [await fleet.metric(one, "turns_total") for one in fleet.gateways]
    assert sum(turns) == 12
    assert [await fleet.metric(one, "claims_total") for one in fleet.gateways] == [0, 0]
    assert sum([await fleet.metric(one, "forwarded_total") for one in fleet.gateways]) >= 8
    assert fleet.world.sql(
        "SELECT sum(num_turns), count(DISTINCT gateway_epoch) FROM trajectory_session"
    ) == [(12, 2)]


async def test_sessions_of_a_dead_gateway_go_on_at_another(gateway_fleet: GatewayFleet) -> None:
    fleet = gateway_fleet
    engine = await begin(fleet, 2)
    session = (await leased(fleet))[0]
    owner, other = told(fleet, session)
    assert await ask(owner.url, session, [USER]) == "forty six"
    engine.step_s = 0.2
    history = [USER, {"role": "assistant", "content": "forty six"}, {"role": "user", "content": "?"}]
    turn = asyncio.create_task(ask(other.url, session, history))
    await fleet.world.until(_is_busy(engine), what="the turn to be in the making")

    fleet.kill(owner)
    engine.step_s = 0.0

    assert await turn == "forty six"
    rows = fleet.world.sql(
        "SELECT node_index, kind, parent_index, is_partial FROM trajectory_node ORDER BY node_index"
    )
    assert rows == [(0, 0, None, False), (1, 2, 0, False), (2, 1, 1, False), (3, 2, 2, False)]
    assert await fleet.metric(other, "claims_total") == 1
    await fleet.revive(owner)
    assert await ask(owner.url, session, [*history, USER]) == "forty six"
    assert await fleet.metric(owner, "claims_total") == 0, "a session stays with a gateway that lives"


async def test_a_kept_response_is_named_at_any_gateway_and_outlives_its_own(
    gateway_fleet: GatewayFleet,
) -> None:
    fleet = gateway_fleet
    await begin(fleet, 2)
    session = (await leased(fleet))[0]
    owner, other = told(fleet, session)
    first = await respond(owner.url, session)
    second = await respond(other.url, session, previous_response_id=first)
    fleet.kill(owner)
    third = await respond(other.url, session, previous_response_id=second)
    await respond(other.url, session, previous_response_id=third)

    rows = fleet.world.sql(
        "SELECT parent_index, drift FROM trajectory_node WHERE kind < 2 ORDER BY node_index"
    )
    assert rows == [(None, "clean"), (1, "clean"), (3, "clean"), (5, "clean")]


async def respond(url: str, session: dict[str, Any], **fields: Any) -> str:
    """Return the identifier of a new response."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=session["api_key"], max_retries=6) as client:
        identifier: str = (await client.responses.create(model="tiny", input="12+34?", **fields)).id
    return identifier


async def test_a_gateway_that_was_taken_for_dead_cannot_write(gateway_fleet: GatewayFleet) -> None:
    """It stood still in mid-turn; another gateway goes on with its session, and its own turn is refused."""
    fleet = gateway_fleet
    engine = await begin(fleet, 2)
    session = (await leased(fleet))[0]
    owner, other = told(fleet, session)
    engine.step_s = 0.5
    late = asyncio.create_task(_status(fleet.world, owner, session, [USER]))
    await fleet.world.until(_is_busy(engine), what="the turn to be in the making")
    fleet.pause(owner)
    engine.step_s = 0.0

    assert await ask(other.url, session, [USER]) == "forty six"
    fleet.resume(owner)

    assert await late == 503
    assert fleet.world.sql("SELECT kind FROM trajectory_node ORDER BY node_index") == [(0,), (2,)]
    assert await ask(owner.url, session, [USER]) == "forty six", "it passes the session's requests on"
    assert fleet.world.sql("SELECT kind FROM trajectory_node ORDER BY node_index") == [(0,), (2,), (2,)]


async def test_a_session_that_is_over_stops_at_the_gateway_that_serves_it(
    gateway_fleet: GatewayFleet,
) -> None:
    fleet = gateway_fleet
    engine = await begin(fleet, 2)
    agent = fleet.world.make_phase(Role.AGENT)
    groups = await fleet.world.lease(agent)
    engine.step_s = 0.5
    for group in groups[:3]:
        session = group["sessions"][0]
        owner, _ = told(fleet, session)
        turn = asyncio.create_task(_status(fleet.world, owner, session, [USER]))
        await fleet.world.until(_is_busy(engine), what="the turn to be in the making")
        await fleet.world.finish(agent, session["session_id"], reward=1.0)
        assert await turn == 400
        await fleet.world.until(_is_idle(engine), what="the engine's work to be aborted", timeout_s=3.0)
    assert fleet.world.sql("SELECT count(*) FROM trajectory_node") == [(0,)]


async def _status(
    world: GatewayWorld, gateway: FleetGateway, session: dict[str, Any], messages: list[Any]
) -> int:
    assert world.http is not None
    async with world.http.post(
        f"{gateway.url}/v1/chat/completions",
        data=json.dumps({"messages": messages}).encode(),
        headers={"Authorization": f"Bearer {session['api_key']}"},
    ) as response:
        await response.read()
        return response.status


def _is_busy(engine: Any) -> Any:
    async def check() -> bool:
        return bool(engine.num_in_flight == 1)

    return check


def _is_idle(engine: Any) -> Any:
    async def check() -> bool:
        return bool(engine.num_in_flight == 0)

    return check
