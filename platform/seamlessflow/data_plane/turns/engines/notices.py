"""Listens for notifications on its own connection, and checks that the connection is alive.

A lost notification looks like one that was never sent, so the listener queries the server every CHECK_S and closes a
connection that does not answer. Maintenance polls too, so a lost connection costs at most a second of latency; of a
session that another gateway ended, the store refuses the turns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import LiteralString

from psycopg import AsyncConnection

from seamlessflow.data_plane.store.connection import DATABASE_AWAY, RETRY_S, Connection
from seamlessflow.runtime.connections import KEEPALIVES, connection_cut

log = logging.getLogger(__name__)

ENGINES = "sf_engines"
CHECK_S = 5.0
ANSWER_S = 5.0


async def notices_hear(database_url: str, handlers: Mapping[str, Callable[[str], Awaitable[None]]]) -> None:
    """Call the function of each channel with the payload of each notification, until cancelled."""
    while True:
        try:
            connection = await AsyncConnection.connect(
                database_url, autocommit=True, connect_timeout=5, **KEEPALIVES
            )
            async with connection:
                await _ask(connection, "; ".join(f"LISTEN {channel}" for channel in handlers))
                while True:
                    async for notify in connection.notifies(timeout=CHECK_S):
                        await handlers[notify.channel](notify.payload)
                    await _ask(connection, "SELECT 1")
        except DATABASE_AWAY as error:
            log.warning(
                "the connection that listens for engines was lost and is reopened: %s", str(error).strip()
            )
        await asyncio.sleep(RETRY_S)


async def _ask(connection: Connection, statement: LiteralString) -> None:
    """Query the server. Raises psycopg.OperationalError if it does not answer."""
    cutting = asyncio.get_running_loop().call_later(ANSWER_S, connection_cut, connection.fileno())
    try:
        await connection.execute(statement)
    finally:
        cutting.cancel()
