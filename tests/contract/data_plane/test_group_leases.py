"""What a lease of groups reads in PostgreSQL: whether a phase lives, under the job's lock, and which groups have slots
free."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import groups_leasable
from seamlessflow.data_plane.store.jobs import job_lock_number, phase_lock
from tests.fixtures.gateway_world import GatewayWorld


@pytest.fixture
async def connection(gateway_world: GatewayWorld) -> AsyncIterator[Connection]:
    gateway_world.make_job()
    async with await AsyncConnection.connect(gateway_world.database_url, autocommit=True) as opened:
        yield opened


async def free(connection: Connection, agent: PhaseClaims) -> list[bool]:
    return [group.has_free_slots for group in await groups_leasable(connection, agent)]


async def test_a_group_has_free_slots_only_while_a_session_is_neither_open_nor_closed(
    gateway_world: GatewayWorld, connection: Connection
) -> None:
    world = gateway_world
    await world.start_gateway()
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=1)
    assert await free(connection, agent) == [True]
    (rest,) = await world.lease(agent, max_sessions=1)
    assert await free(connection, agent) == [False]
    await world.finish(agent, rest["sessions"][0]["session_id"], failure="broken")
    assert await free(connection, agent) == [True]
    (again,) = await world.lease(agent, max_sessions=1)
    assert (again["group_id"], again["sessions"][0]["attempt"]) == (group["group_id"], 2)
    await world.finish(agent, again["sessions"][0]["session_id"], reward=1.0)
    assert await free(connection, agent) == [False]


async def test_a_live_phase_gets_the_lock_of_its_job_until_its_transaction_ends(
    gateway_world: GatewayWorld, connection: Connection
) -> None:
    agent = gateway_world.make_phase(Role.AGENT)
    with psycopg.connect(gateway_world.database_url, autocommit=True) as other:

        def is_free() -> bool:
            number = job_lock_number(gateway_world.job_id)
            row = other.execute("SELECT pg_try_advisory_xact_lock(%s)", [number]).fetchone()
            return bool(row and row[0])

        async with connection.transaction():
            await phase_lock(connection, agent)
            assert not is_free()
        assert is_free()
        gateway_world.end_phase(agent)
        with pytest.raises(ApiError):
            await phase_lock(connection, agent)
        assert is_free()
