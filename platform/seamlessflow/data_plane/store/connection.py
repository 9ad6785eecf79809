"""Connections to PostgreSQL: makes pools, waits for the database at start, and recognises when it is unreachable."""

import asyncio
import datetime
import logging
import os
import select
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, namedtuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from seamlessflow.core.types.ids import uuid7
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.runtime.connections import KEEPALIVES

log = logging.getLogger(__name__)

Connection = AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]
START_TIMEOUT_S = 30.0
POOL_SIZE = 4
# A gateway that is stopped within a transaction would keep its locks, and no other could take its sessions over.
MAX_IDLE_IN_TRANSACTION_S = 5.0
DATABASE_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
)
RETRY_S = 0.5


class DatabaseDown(RuntimeError):
    """PostgreSQL could not be reached in time."""


async def database_wait(url: str, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return once a connection succeeds. Raises DatabaseDown."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            async with await AsyncConnection.connect(url, connect_timeout=5):
                return
        except psycopg.OperationalError as error:
            reason = str(error).strip().partition("\n")[0]
            if time.monotonic() >= deadline:
                raise DatabaseDown(
                    f"The database could not be reached within {timeout_s:.0f} s: {reason}"
                ) from error
            log.warning("waiting for the database: %s", reason)
            await asyncio.sleep(RETRY_S)


async def role_report(url: str) -> None:
    """Log a warning if the gateway's database role has more rights than it needs."""
    async with await AsyncConnection.connect(url, connect_timeout=5) as connection:
        cursor = await connection.execute(
            "SELECT current_user, has_table_privilege('accounts_user', 'INSERT') "
            "WHERE to_regclass('accounts_user') IS NOT NULL"
        )
        row = await cursor.fetchone()
    if row is not None and row[1]:
        log.warning(
            "the gateway connects as the role %s, which may change every table; give it a role of its own "
            "(set GATEWAY_DATABASE_URL for the migrations, and DATABASE_URL to the same address for the gateway)",
            row[0],
        )


def pool_make(url: str, *, max_size: int = POOL_SIZE) -> Pool:
    return AsyncConnectionPool(
        url,
        min_size=1,
        max_size=max_size,
        open=False,
        timeout=START_TIMEOUT_S,
        check=_check,
        configure=idle_bound,
        kwargs={"autocommit": True, **KEEPALIVES},
    )


async def idle_bound(connection: Connection) -> None:
    """Let the server end the connection if it stands still within a transaction."""
    limit_ms = str(round(MAX_IDLE_IN_TRANSACTION_S * 1000))
    await connection.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', %s, false)", [limit_ms]
    )


async def _check(connection: Connection) -> None:
    """Raise psycopg.OperationalError if the server has ended an idle connection.

    A server that ends it says so. Only then is it asked, because a question for every use is a fifth of all commits.
    """
    news = select.poll()
    news.register(connection.pgconn.socket, select.POLLIN)
    if news.poll(0):
        await Pool.check_connection(connection)


async def named_rows(
    connection: Connection, statement: str, values: Mapping[str, Any], *, binary: bool = False
) -> list[Any]:
    """Return the rows of a statement, each a named tuple of its columns."""
    cursor = await connection.cursor(row_factory=namedtuple_row).execute(statement, values, binary=binary)
    return await cursor.fetchall()


async def database_now(connection: Connection) -> datetime.datetime:
    """Return the time of the database's clock, the only clock for times that other processes evaluate."""
    cursor = await connection.execute("SELECT clock_timestamp()")
    row = await cursor.fetchone()
    assert row is not None
    moment: datetime.datetime = row[0]
    return moment


def database_away() -> ApiError:
    """Return the error for clients while the database is unreachable; the OpenAI SDKs retry it."""
    message = "The gateway's database is unreachable; try again."
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, message, code="database_away", headers={"retry-after": "1"}
    )


def new_id() -> UUID:
    """Return a fresh UUIDv7."""
    return uuid7(unix_ms=time.time_ns() // 1_000_000, random_bytes=os.urandom(10))
