"""Growing answers of a real gateway at the broker: only of watched groups, exact, and without delaying turns."""

import asyncio
import base64
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pytest
import redis.asyncio

from seamlessflow.core.protocol.live_events import (
    ASK,
    ASKED_KEY,
    ASKED_TTL_S,
    CHANNEL,
    WATCH,
    WATCH_TTL_S,
    WATCHED_KEY,
    group_topic,
)
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.live.progress_feed import ProgressFeed, Watched
from tests.fakes.scripted_engine import logprob_of
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.services import ValkeyUrls
from tests.integration.data_plane.turns.test_gateway_faults import ANSWER, USER, check_row, script

HEAR_TIMEOUT_S = 10.0
STEP_S = 0.03
NUM_CANCELLED_AT = 200  # steps of the event loop; the first exchange of a feed takes fewer


class Listener:
    """Watches groups as a web process does, and collects what is published of them."""

    def __init__(self, url: str) -> None:
        self.broker = redis.asyncio.Redis.from_url(url)
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: dict[str, list[float]] = {}
        self.gains: list[dict[str, Any]] = []

    async def watch(self, group_id: UUID) -> None:
        await self.broker.eval(WATCH, 1, WATCHED_KEY, WATCH_TTL_S, show_id(IdKind.GROUP, group_id))  # type: ignore[misc]

    async def ask(self, group_id: UUID) -> None:
        await self.broker.eval(ASK, 1, ASKED_KEY, ASKED_TTL_S, show_id(IdKind.GROUP, group_id))  # type: ignore[misc]

    async def listen(self, group_id: UUID) -> AsyncIterator[dict[str, Any]]:
        """Join the gains in order by turn, as a browser does."""
        async with self.broker.pubsub() as subscription:
            await subscription.subscribe(CHANNEL)
            async for message in subscription.listen():
                if message["type"] != "message":
                    continue
                head, _, data = message["data"].partition(b"\n")
                assert msgspec.json.decode(head)[0] == group_topic(group_id)
                for gain in msgspec.json.decode(data)["growing"]:
                    self._add(gain)
                    yield gain

    def _add(self, gain: dict[str, Any]) -> None:
        self.gains.append(gain)
        tokens = self.tokens.setdefault(gain["turn"], [])
        logprobs = self.logprobs.setdefault(gain["turn"], [])
        assert gain["start"] <= len(tokens), "tokens are missing"
        tokens[gain["start"] :] = np.frombuffer(_bytes(gain, "token_ids"), "<i4").tolist()
        logprobs[gain["start"] :] = np.frombuffer(_bytes(gain, "logprobs"), "<f2").tolist()


def _bytes(gain: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(gain.get(name, ""))


@pytest.fixture
async def listener(embedded_valkey: ValkeyUrls, gateway_world: GatewayWorld) -> AsyncIterator[Listener]:
    gateway_world.environ["EVENTS_URL"] = embedded_valkey.events
    listener = Listener(embedded_valkey.events)
    await listener.broker.flushdb()
    yield listener
    await listener.broker.aclose()


async def test_the_feed_ends_at_whatever_moment_it_is_cancelled(embedded_valkey: ValkeyUrls) -> None:
    registry: Any = SimpleNamespace(turns_growing=lambda group_id: [])
    for num_steps in range(NUM_CANCELLED_AT):
        feed = asyncio.create_task(ProgressFeed(embedded_valkey.events, registry, Watched()).run())
        for _ in range(num_steps):
            await asyncio.sleep(0)
        feed.cancel()
        async with asyncio.timeout(HEAR_TIMEOUT_S):
            await asyncio.wait([feed])
        assert feed.cancelled(), f"not after {num_steps} steps"


async def test_a_watched_answer_is_told_as_it_grows_with_its_versions_and_hand_overs(
    gateway_world: GatewayWorld, listener: Listener
) -> None:
    world = gateway_world
    first, second = await world.start_engines(script, num_engines=2)
    first.step_s = second.step_s = STEP_S
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    group_id = parse_id(IdKind.GROUP, group["group_id"])
    await listener.watch(group_id)
    await asyncio.sleep(0.6)  # longer than the gateway's poll interval for the list
    first.abort_after = second.abort_after = 8  # each gives up once, after eight tokens of its own
    session = group["sessions"][0]
    hearing = listener.listen(group_id)
    asking = asyncio.create_task(world.chat(session["api_key"], [USER]))
    async with asyncio.timeout(HEAR_TIMEOUT_S):
        async for gain in hearing:
            if gain.get("is_over"):
                break
    await asking
    assert gain["is_recorded"]
    (tokens,) = listener.tokens.values()
    expected = first.text.tokenizer.encode(ANSWER, add_special_tokens=False).ids
    assert tokens == expected
    (logprobs,) = listener.logprobs.values()
    np.testing.assert_allclose(logprobs, [logprob_of(token) for token in expected], atol=1e-3)
    opening, *later = listener.gains
    assert parse_id(IdKind.SESSION, opening["session"]) == UUID(session["session_id"])
    assert opening["prompt"]["messages"] == [USER]
    assert opening["prompt"]["kind"] == "root"
    ((prompt,),) = world.sql("SELECT ('x' || left(id::text, 8))::bit(32)::int4 FROM trajectory_prompt")
    assert opening["prompt"]["prompt"] == prompt
    assert len(later) > 3, "it was told at once, not as it grew"
    assert [gain["handover_at"] for gain in later if "handover_at" in gain][-1] == [8, 16]
    assert later[-1]["spans"] == [0, 0]
    check_row(world, first)
    assert world.sql("SELECT flags->'handover_at', num_handovers FROM trajectory_node WHERE kind = 2") == [
        ([8, 16], 2)
    ]


async def test_who_comes_later_hears_the_answer_from_its_first_token(
    gateway_world: GatewayWorld, listener: Listener
) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(script)
    engine.step_s = 0.1
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    group_id = parse_id(IdKind.GROUP, group["group_id"])
    await listener.watch(group_id)
    await asyncio.sleep(0.6)
    asking = asyncio.create_task(world.chat(group["sessions"][0]["api_key"], [USER]))
    num_openings = 0
    async with asyncio.timeout(HEAR_TIMEOUT_S):
        async for gain in listener.listen(group_id):
            if gain["start"] == 0:
                num_openings += 1
                await listener.ask(group_id)
                assert gain["prompt"]["messages"] == [USER]
            if num_openings == 3:
                break
    await asking


async def test_nothing_is_said_of_groups_that_nobody_watches(
    gateway_world: GatewayWorld, listener: Listener
) -> None:
    world = gateway_world
    await world.start_engines(script)
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    await listener.watch(uuid4())
    await asyncio.sleep(0.6)
    await world.chat(group["sessions"][0]["api_key"], [USER])
    await asyncio.sleep(0.3)
    assert await listener.broker.keys("seamlessflow:live:stream:*") == []


async def test_turns_do_not_notice_a_broker_that_is_away(
    gateway_world: GatewayWorld, listener: Listener
) -> None:
    world = gateway_world
    world.environ["EVENTS_URL"] = "unix:///nonexistent/valkey.sock"
    (engine,) = await world.start_engines(script)
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    await world.chat(group["sessions"][0]["api_key"], [USER])
    check_row(world, engine)
    assert b"the events broker is unreachable" in (world.folder / "gateway.log").read_bytes()
