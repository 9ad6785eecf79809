"""What must not depend on which of several gateways is asked: batches, held time, live pages, external sessions."""

import asyncio
import time
from typing import Any

from seamlessflow.core.protocol.credentials import PhaseClaims, phase_credential_sign
from seamlessflow.core.protocol.live_events import group_topic, stream_key
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_fleet import FleetGateway, GatewayFleet
from tests.fixtures.gateway_world import SECRET
from tests.fixtures.services import ValkeyUrls
from tests.integration.data_plane.gateways.test_several_gateways import USER, ask, begin, script, told
from tests.integration.data_plane.live.test_gateway_progress import Listener

HELD_S = 2.0
ERROR_S = 1.5  # allowed error of recorded held time
BATCH: dict[str, Any] = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 30.0}


async def post(
    fleet: GatewayFleet, gateway: FleetGateway, path: str, body: Any, token: str
) -> tuple[int, bytes]:
    assert fleet.world.http is not None
    headers = {"Authorization": f"Bearer {token}"}
    async with fleet.world.http.post(gateway.url + path, json=body, headers=headers) as response:
        return response.status, await response.read()


async def phase_post(
    fleet: GatewayFleet, gateway: FleetGateway, claims: PhaseClaims, path: str, body: Any
) -> tuple[int, bytes]:
    return await post(fleet, gateway, path, body, phase_credential_sign(claims, secret=SECRET))


async def test_a_batch_is_built_once_whoever_is_asked(gateway_fleet: GatewayFleet) -> None:
    """Its turns were recorded by both gateways."""
    fleet, world = gateway_fleet, gateway_fleet.world
    await begin(fleet, 2)
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    waiting = [
        asyncio.create_task(phase_post(fleet, one, trainer, "/trainer/v1/batches/lease", BATCH))
        for one in fleet.gateways
    ]
    owners = set()
    for group in await world.lease(agent, max_sessions=16):
        for reward, session in enumerate(group["sessions"]):
            owner, _ = told(fleet, session)
            owners.add(owner.port)
            await ask(owner.url, session, [USER])
            await world.finish(agent, session["session_id"], reward=float(reward))

    (status, payload), second = await asyncio.gather(*waiting)

    assert len(owners) == 2
    assert status == 200
    assert second == (200, payload)
    assert world.sql("SELECT number, num_groups FROM trajectory_batch") == [(1, 8)]
    assert sorted([await fleet.metric(one, "batches_total") for one in fleet.gateways]) == [0, 1]


async def test_held_time_goes_with_a_session_to_another_gateway(gateway_fleet: GatewayFleet) -> None:
    fleet, world = gateway_fleet, gateway_fleet.world
    world.make_job(rollout={"group_size": 2, "groups_per_batch": 8}, num_tasks=8)
    await fleet.start(2)
    agent = world.make_phase(Role.AGENT)
    session = (await world.lease(agent))[0]["sessions"][0]
    owner, other = told(fleet, session)

    async def held_s() -> float:
        body = {"session_ids": [session["session_id"]]}
        status, raw = await phase_post(fleet, other, agent, "/runner/v1/sessions/held", body)
        assert status == 200, raw
        return float(world.decode(raw)["held_s"][session["session_id"]])

    began_s = time.monotonic()
    turn = asyncio.create_task(ask(other.url, session, [USER]))
    await asyncio.sleep(HELD_S)
    assert HELD_S - ERROR_S <= await held_s() <= HELD_S + ERROR_S, "its owner knows"
    fleet.kill(owner)
    before_s = await held_s()
    passed_s = time.monotonic() - began_s

    assert passed_s - ERROR_S <= before_s <= passed_s + ERROR_S, (
        "the turn was held, then its gateway was away"
    )
    await world.start_engine(script)
    assert await turn == "forty six"
    assert await held_s() >= before_s


async def test_live_pages_see_the_answers_of_all_gateways(
    gateway_fleet: GatewayFleet, embedded_valkey: ValkeyUrls
) -> None:
    fleet, world = gateway_fleet, gateway_fleet.world
    world.environ["EVENTS_URL"] = embedded_valkey.events
    listener = Listener(embedded_valkey.events)
    await listener.broker.flushdb()
    engine = await begin(fleet, 2)
    groups = await world.lease(world.make_phase(Role.AGENT))
    one_of_each = {told(fleet, group["sessions"][0])[0].port: group for group in groups}
    for group in one_of_each.values():
        await listener.watch(parse_id(IdKind.GROUP, group["group_id"]))
    await asyncio.sleep(0.6)  # longer than the gateways' poll interval for the list
    engine.step_s = 0.2

    sessions = [group["sessions"][0] for group in one_of_each.values()]
    await asyncio.gather(*(ask(told(fleet, one)[0].url, one, [USER]) for one in sessions))

    topics = [group_topic(parse_id(IdKind.GROUP, group["group_id"])) for group in one_of_each.values()]
    assert len(topics) == 2
    assert [await listener.broker.exists(stream_key(topic)) for topic in topics] == [1, 1]
    await listener.broker.aclose()


async def test_external_sessions_are_opened_and_closed_at_any_gateway(gateway_fleet: GatewayFleet) -> None:
    fleet, world = gateway_fleet, gateway_fleet.world
    await begin(fleet, 2, environment="external")
    world.make_token()
    urls = list[str]()
    # A group's gateway is a matter of chance, so both are met after a few groups, and almost never later than this.
    for number in range(60):
        if number >= 8 and number % 2 == 0 and len(set(urls)) == 2:
            break
        asked, other = fleet.gateways[number % 2], fleet.gateways[1 - number % 2]
        body = {"job": show_id(IdKind.JOB, world.job_id), "group": f"g{number // 2}"}
        status, raw = await post(fleet, asked, "/v1/sessions", body, world.api_token)
        assert status == 201, raw
        opened = world.decode(raw)
        urls.append(opened["base_url"])
        answer = await ask(opened["base_url"].removesuffix("/v1"), opened, [USER])
        assert answer == "forty six"
        path = f"/v1/sessions/{opened['session']}"
        assert (await post(fleet, other, f"{path}/reward", {"reward": 1.0}, world.api_token))[0] == 204
        assert (await post(fleet, asked, f"{path}/close", {}, world.api_token))[0] == 204
        await world.until(_is_refused(fleet, other, opened["api_key"]), what="the session to be closed")
    assert set(urls) == {f"{one.url}/v1" for one in fleet.gateways}
    sessions = world.sql("SELECT state, reward, num_turns FROM trajectory_session")
    assert sessions == [("closed", 1.0, 1)] * len(urls)
    groups = world.sql("SELECT state, count(*) FROM trajectory_group GROUP BY state")
    assert groups == [("ready", len(urls) // 2)]


def _is_refused(fleet: GatewayFleet, gateway: FleetGateway, api_key: str) -> Any:
    """Until its own gateway has been told, it may sample an answer, which the store refuses (503)."""

    async def check() -> bool:
        status, _ = await post(fleet, gateway, "/v1/chat/completions", {"messages": [USER]}, api_key)
        assert status in (400, 503)
        return status == 400

    return check
