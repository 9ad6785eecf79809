"""Connections to engines, tied to lifelines, which can end the wait for a connection and for an answer.

`EngineConnections.take` returns an idle connection, or a new one; the caller asks, reads and gives it back. The client
in `runtime/http` describes how they work.
"""

import asyncio

from seamlessflow.data_plane.turns.engines.lifeline import Lifeline
from seamlessflow.runtime.http.client import Disconnected, HttpConnection, HttpConnections, Silent
from seamlessflow.runtime.http.heads import Address, address_of

__all__ = [
    "IDLE_S",
    "EngineConnection",
    "EngineConnections",
    "EngineDisconnected",
    "EngineSilent",
    "address_of",
]

IDLE_S = 1.5

EngineConnection = HttpConnection
EngineDisconnected = Disconnected
EngineSilent = Silent


class EngineConnections:
    """Knows all connections to engines; one per process."""

    def __init__(self) -> None:
        self._connections = HttpConnections(peer="the engine", idle_s=IDLE_S)

    def close(self) -> None:
        self._connections.close()

    async def take(self, endpoint: str, lifeline: Lifeline) -> EngineConnection:
        """Return a connection that no other request uses, tied to the lifeline.

        Raises OSError, and EngineStalled if the lifeline is cut before there is one.
        """
        address = address_of(endpoint)
        connection = self._connections.take_idle(address) or await self._connect(address, lifeline)
        lifeline.tie(connection.fail)
        return connection

    def give_back(self, connection: EngineConnection, lifeline: Lifeline) -> None:
        lifeline.untie()
        self._connections.give_back(connection)

    async def _connect(self, address: Address, lifeline: Lifeline) -> EngineConnection:
        cut: list[Exception] = []
        try:
            async with asyncio.timeout(None) as limit:

                def end(error: Exception) -> None:
                    cut.append(error)
                    limit.reschedule(0)

                lifeline.tie(end)
                return await self._connections.connect(address)
        except TimeoutError as error:
            if cut:
                raise cut[0] from error
            raise
        finally:
            lifeline.untie()
