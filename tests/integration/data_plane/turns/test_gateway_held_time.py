"""Recorded held time outlives its gateway: time that infrastructure cost a session is never charged to its task."""

import asyncio
import signal
import time
from typing import Any

import aiohttp
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER = {"role": "user", "content": "?"}
HELD_S = 2.5
AWAY_S = 2.5
ERROR_S = 2.0  # allowed error of the recorded time


async def held_s(world: GatewayWorld, agent: Any, session: dict[str, Any]) -> float:
    body = {"session_ids": [session["session_id"]]}
    status, raw = await world.phase_post(agent, "/runner/v1/sessions/held", body)
    assert status == 200
    return float(world.decode(raw)["held_s"][session["session_id"]])


async def test_a_killed_gateway_leaves_its_account_of_held_time(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0)
    agent = world.make_phase(Role.AGENT)
    (group, *_) = await world.lease(agent)
    held, calm = group["sessions"]

    async def is_held() -> bool:
        return await held_s(world, agent, held) > 0

    turn = asyncio.create_task(world.chat(held["api_key"], [USER]))
    await world.until(is_held, what="a turn is held")
    began_s = time.monotonic()
    await asyncio.sleep(HELD_S)
    world.kill_gateway()
    killed_s = time.monotonic()
    with pytest.raises(aiohttp.ClientError):
        await turn
    await asyncio.sleep(AWAY_S)
    await world.start_gateway()
    back_s = time.monotonic()

    of_held, of_calm = await held_s(world, agent, held), await held_s(world, agent, calm)
    assert of_held >= HELD_S + AWAY_S - ERROR_S
    assert of_held <= back_s - began_s + ERROR_S
    assert AWAY_S - ERROR_S <= of_calm <= back_s - killed_s + ERROR_S, "its absence holds all sessions"

    await world.start_engine(lambda prompt: "yes<|im_end|>")
    await world.chat(held["api_key"], [USER])  # read back, it continues from the recorded time
    assert await held_s(world, agent, held) >= of_held
    world.kill_gateway()
    await world.start_gateway()
    assert await held_s(world, agent, held) >= of_held


async def test_a_gateway_that_stands_still_holds_its_sessions(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    (group, *_) = await world.lease(agent)
    calm = group["sessions"][0]
    await world.chat(calm["api_key"], [USER])
    assert world.process is not None

    world.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(3.5)
    world.process.send_signal(signal.SIGCONT)
    during_s = await held_s(world, agent, calm)

    assert during_s >= 3.5 - ERROR_S
    await asyncio.sleep(1.5)
    again_s = await held_s(world, agent, calm)
    assert during_s <= again_s < during_s + 3.5, "it is counted once, and then it is over"


async def test_held_time_goes_with_its_session(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0)
    agent = world.make_phase(Role.AGENT)
    (group, *_) = await world.lease(agent)
    held = group["sessions"][0]
    turn = asyncio.create_task(world.chat(held["api_key"], [USER]))

    async def is_noted() -> bool:
        return bool(world.sql("SELECT 1 FROM trajectory_session_hold WHERE held_since IS NOT NULL"))

    await world.until(is_noted, what="the hold is durable while it lasts")
    await world.start_engine(lambda prompt: "yes<|im_end|>")
    await turn

    async def is_closed() -> bool:
        return world.sql("SELECT held_since, held_s > 0 FROM trajectory_session_hold") == [(None, True)]

    await world.until(is_closed, what="its end is durable too")
    world.sql("DELETE FROM trajectory_node; DELETE FROM trajectory_session")
    assert world.sql("SELECT * FROM trajectory_session_hold") == []
