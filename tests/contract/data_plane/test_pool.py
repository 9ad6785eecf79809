"""The gateway's pool of connections: it asks the server nothing between uses, and notices what the server ended."""

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from seamlessflow.data_plane.store import connection as gateway_connection
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


async def test_a_gateway_that_is_stopped_within_a_transaction_loses_its_locks(
    gateway_world: GatewayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_connection, "MAX_IDLE_IN_TRANSACTION_S", 0.2)
    lock = "SELECT pg_advisory_xact_lock(1)"
    async with pool_make(gateway_world.database_url) as pool, pool.connection() as stopped:
        await stopped.set_autocommit(False)
        await stopped.execute(lock)
        async with await AsyncConnection.connect(gateway_world.database_url) as other:
            await other.execute("SET lock_timeout = '20s'")
            await other.execute(lock)

        with pytest.raises(gateway_connection.DATABASE_AWAY):
            await stopped.execute("SELECT 1")
