"""A phase with several engines: gateways know each, and a lost one costs only its own turns."""

import asyncio
import json
from typing import Any

import psycopg

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.jobs import engines_read
from tests.fixtures.gateway_world import SECRET, GatewayWorld
from tests.integration.data_plane.turns.test_gateway_faults import TEXT, client_of, script, stream_text

USER: Any = {"role": "user", "content": "12+34?"}
COUNTS = "SELECT num_handovers, num_continuations, version_spans FROM trajectory_node WHERE kind = 2"


async def table(world: GatewayWorld) -> list[tuple[int, str, bool]]:
    connection = await psycopg.AsyncConnection.connect(world.database_url)
    async with connection:
        engines = await engines_read(connection, secret=SECRET)
    return [(engine.replica, engine.endpoint, engine.has_siblings) for engine in engines]


async def session_keys(world: GatewayWorld, num: int) -> list[str]:
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=num)
    return [session["api_key"] for session in group["sessions"]]


async def test_the_engine_table_lists_every_engine_of_a_phase_that_serves(
    gateway_world: GatewayWorld,
) -> None:
    gateway_world.make_job()
    first, second = await gateway_world.start_replicas(script, num=2)
    assert await table(gateway_world) == [(0, first.base_url, True), (1, second.base_url, True)]

    gateway_world.tell_replicas([None, second])
    assert await table(gateway_world) == [(1, second.base_url, True)]


async def test_a_lost_engine_costs_its_turns_a_hand_over_its_fellow_nothing_and_is_used_again_once_it_is_back(
    gateway_world: GatewayWorld,
) -> None:
    gateway_world.make_job()
    lost, fellow = await gateway_world.start_replicas(script, num=2)
    await gateway_world.start_gateway()
    lost.die_after, lost.step_s, fellow.step_s = 12, 0.002, 0.002
    keys = await session_keys(gateway_world, 2)

    async def answered(key: str) -> str:
        async with client_of(gateway_world, key) as client:
            return await stream_text(client)

    assert await asyncio.gather(*map(answered, keys)) == [TEXT, TEXT]
    counts = gateway_world.sql(COUNTS)
    assert sorted(handovers > 0 for handovers, _, _ in counts) == [False, True]
    assert all(handovers == continued and spans == [0, 0] for handovers, continued, spans in counts)

    assert lost.claims is not None
    again = await gateway_world.start_replica(script, lost.claims)
    gateway_world.tell_replicas([again, fellow])
    fellow.is_draining = True
    assert (await gateway_world.chat(keys[0], [USER]))["choices"][0]["message"]["content"] == TEXT
    assert again.num_requests == 1


async def test_signs_of_life_tell_the_turns_of_each_engine(gateway_world: GatewayWorld) -> None:
    gateway_world.make_job()
    engines = await gateway_world.start_replicas(script, num=2)
    await gateway_world.start_gateway()
    for engine in engines:
        engine.freeze_after = 3
    turns = [
        asyncio.create_task(gateway_world.chat(key, [USER])) for key in await session_keys(gateway_world, 2)
    ]

    async def are_told() -> bool:
        ((demands,),) = gateway_world.sql("SELECT demands::text FROM trajectory_gateway")
        keys = [EngineKey.parse(key) for key in json.loads(demands)]
        return [key.replica for key in sorted(keys)] == [0, 1] and len({key.phase_id for key in keys}) == 1

    await gateway_world.until(are_told, what="each engine has a turn")
    for engine in engines:
        engine.thaw()
    assert all(turn["choices"][0]["message"]["content"] == TEXT for turn in await asyncio.gather(*turns))
