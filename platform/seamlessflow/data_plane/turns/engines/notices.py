"""Listens for changes of the engine table, on a connection of its own that is proven to be alive.

A notification that never comes cannot be told from one that was lost on the way, so the server is asked each CHECK_S;
one that does not answer is taken for gone. Maintenance polls as well: a lost connection costs a second of latency until
it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import LiteralString

from psycopg import AsyncConnection

from seamlessflow.data_plane.store.connection import DATABASE_AWAY, RETRY_S, Connection
from seamlessflow.runtime.connections import KEEPALIVES, connection_cut

log = logging.getLogger(__name__)

CHANNEL = "sf_engines"
CHECK_S = 5.0
ANSWER_S = 5.0


async def notices_hear(database_url: str, heard: Callable[[str], Awaitable[None]]) -> None:
    """Call `heard` with each payload, until cancelled."""
    while True:
        try:
            connection = await AsyncConnection.connect(
                database_url, autocommit=True, connect_timeout=5, **KEEPALIVES
            )
            async with connection:
                await _ask(connection, f"LISTEN {CHANNEL}")
                while True:
                    async for notify in connection.notifies(timeout=CHECK_S):
                        await heard(notify.payload)
                    await _ask(connection, "SELECT 1")
        except DATABASE_AWAY as error:
            log.warning("listening for engines begins anew: %s", str(error).strip())
        await asyncio.sleep(RETRY_S)


async def _ask(connection: Connection, statement: LiteralString) -> None:
    """Raises psycopg.OperationalError if the server gives no answer."""
    cutting = asyncio.get_running_loop().call_later(ANSWER_S, connection_cut, connection.fileno())
    try:
        await connection.execute(statement)
    finally:
        cutting.cancel()
