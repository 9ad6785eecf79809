"""Requests that arrive again without any mark: retries after real disconnects, and repeated sampling of one prompt."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import psycopg
import pytest

from tests.fixtures.gateway_world import GatewayWorld
from tests.integration.data_plane.turns.test_gateway_faults import (
    ROW,
    TEXT,
    USER,
    _is_busy,
    _is_idle,
    script,
    session_key,
)

FINISHED = "SELECT count(DISTINCT turn_id) FROM trajectory_node WHERE kind = 2 AND NOT is_partial"


class Agent:
    """Sends one body, always the same, without an Idempotency-Key or a retry count."""

    def __init__(self, world: GatewayWorld, key: str, *, is_streamed: bool) -> None:
        self.url = world.base_url + "/v1/chat/completions"
        self.headers = {"Authorization": f"Bearer {key}"}
        self.body = json.dumps({"messages": [USER], "stream": is_streamed}).encode()
        self.is_streamed = is_streamed

    async def ask(self) -> str:
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.url, data=self.body, headers=self.headers) as response,
        ):
            return self._text(await response.read())

    async def leave(self, world: GatewayWorld, engine: Any) -> None:
        """Ask, and lose the connection once the answer has begun to grow."""
        async with aiohttp.ClientSession() as http:
            asking = asyncio.create_task(self.read(http))
            await world.until(_is_busy(engine), what="the turn to be in the making")
            await asyncio.sleep(0.1)  # some tokens, of which each takes 20 ms
            asking.cancel()
            await asyncio.wait([asking])

    async def read(self, http: aiohttp.ClientSession) -> bytes:
        async with http.post(self.url, data=self.body, headers=self.headers) as response:
            return await response.read()

    def _text(self, raw: bytes) -> str:
        if not self.is_streamed:
            return str(json.loads(raw)["choices"][0]["message"]["content"])
        chunks = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
        return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_retry_without_a_mark_is_the_same_turn(
    gateway_world: GatewayWorld, is_streamed: bool
) -> None:
    (engine,) = await gateway_world.start_engines(script)
    engine.step_s = 0.02
    agent = Agent(gateway_world, await session_key(gateway_world), is_streamed=is_streamed)

    await agent.leave(gateway_world, engine)
    await gateway_world.until(_is_idle(engine), what="the engine's work to be aborted")
    assert gateway_world.sql(ROW) == []
    engine.step_s = 0.0

    assert await agent.ask() == TEXT
    assert gateway_world.sql(FINISHED) == [(1,)]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_retry_right_after_the_loss_is_the_same_turn(
    gateway_world: GatewayWorld, is_streamed: bool
) -> None:
    (engine,) = await gateway_world.start_engines(script)
    engine.step_s = 0.02
    agent = Agent(gateway_world, await session_key(gateway_world), is_streamed=is_streamed)

    for _ in range(3):
        await agent.leave(gateway_world, engine)

    assert await agent.ask() == TEXT
    assert gateway_world.sql(FINISHED) == [(1,)]
    if is_streamed:  # a plain request gets all tokens from the engine at once, so none are left to continue
        continued = re.search(r'retries_total{how="continued"} (\d+)', await metrics_text(gateway_world))
        assert continued is not None
        assert int(continued[1]) > 0


async def test_an_answer_recorded_but_not_delivered_is_delivered_to_the_repeat(
    gateway_world: GatewayWorld,
) -> None:
    """The database keeps the turn's commit waiting until the client has left."""
    (engine,) = await gateway_world.start_engines(script)
    agent = Agent(gateway_world, await session_key(gateway_world), is_streamed=False)
    with psycopg.connect(gateway_world.database_url) as lock:
        lock.execute("LOCK TABLE trajectory_node IN SHARE MODE")
        async with aiohttp.ClientSession() as http:
            asking = asyncio.create_task(agent.read(http))
            await gateway_world.until(_waits_for_lock(gateway_world), what="the commit to wait")
            asking.cancel()
            await asyncio.wait([asking])

    assert await agent.ask() == TEXT
    assert (engine.num_requests, gateway_world.sql(FINISHED)) == (1, [(1,)])
    assert await agent.ask() == TEXT
    assert (engine.num_requests, gateway_world.sql(FINISHED)) == (2, [(2,)])


def _waits_for_lock(world: GatewayWorld) -> Callable[[], Awaitable[bool]]:
    async def is_waiting() -> bool:
        return bool(world.sql("SELECT 1 FROM pg_locks WHERE NOT granted"))

    return is_waiting


async def metrics_text(world: GatewayWorld) -> str:
    async with aiohttp.ClientSession() as http, http.get(world.base_url + "/metrics") as response:
        return await response.text()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_prompt_whose_answer_arrived_is_sampled_anew(
    gateway_world: GatewayWorld, is_streamed: bool
) -> None:
    (engine,) = await gateway_world.start_engines(script)
    engine.step_s = 0.01
    agent = Agent(gateway_world, await session_key(gateway_world), is_streamed=is_streamed)

    one_by_one = [await agent.ask() for _ in range(3)]
    at_once = await asyncio.gather(*(agent.ask() for _ in range(3)))

    assert one_by_one + list(at_once) == [TEXT] * 6
    assert engine.num_requests == 6
    assert gateway_world.sql(FINISHED) == [(6,)]


async def test_a_loss_among_repeated_samples_costs_none_and_doubles_none(gateway_world: GatewayWorld) -> None:
    (engine,) = await gateway_world.start_engines(script)
    engine.step_s = 0.02
    agent = Agent(gateway_world, await session_key(gateway_world), is_streamed=False)

    assert await agent.ask() == TEXT
    await agent.leave(gateway_world, engine)
    assert await agent.ask() == TEXT
    assert gateway_world.sql(FINISHED) == [(2,)]
    assert await agent.ask() == TEXT
    assert gateway_world.sql(FINISHED) == [(3,)]
