"""The gateway's pool of connections: it asks the server nothing between uses, and notices what the server ended."""

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from seamlessflow.data_plane.store.connection import Pool, pool_make
from tests.fixtures.gateway_world import GatewayWorld


async def backend(pool: Pool) -> int:
    async with pool.connection() as connection:
        cursor = await connection.execute("SELECT pg_backend_pid()")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_a_healthy_connection_is_used_again_without_a_question(
    gateway_world: GatewayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(AsyncConnectionPool, "check_connection")
    async with pool_make(gateway_world.database_url, max_size=1) as pool:
        first = await backend(pool)

        assert await backend(pool) == first


async def test_a_connection_that_the_server_ended_is_replaced_before_its_use(
    gateway_world: GatewayWorld,
) -> None:
    async with pool_make(gateway_world.database_url, max_size=1) as pool:
        first = await backend(pool)
        async with await AsyncConnection.connect(gateway_world.database_url, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(%s, 10000)", [first])

        assert await backend(pool) != first
