"""Listens for the gateways of one front, and checks once a round how long each connection has waited.

It takes a host and gives the port on which it listens. Invariant: after `stop` no connection is left.
"""

import asyncio

from seamlessflow_workers.rollout.front_connection import FrontConnection, Server

ROUND_S = 1.0
STOP_S = 1.0
BACKLOG = 512


class FrontServer:
    """Listening → stopped."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connections: set[FrontConnection] = set()
        self._listening: asyncio.Server
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str) -> int:
        """Listen on a free port of this host, and return it."""
        self._listening = await asyncio.get_running_loop().create_server(
            self._accept, host, 0, backlog=BACKLOG
        )
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Give answers that are complete time to leave, and end everything else."""
        self._listening.close()
        for connection in list(self._connections):
            if connection.is_busy:
                connection.abort()
            else:
                connection.close()
        try:
            async with asyncio.timeout(STOP_S):
                while self._connections:  # noqa: ASYNC110 - they end by themselves, within moments
                    await asyncio.sleep(0.01)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        await self._listening.wait_closed()

    def _accept(self) -> FrontConnection:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ROUND_S, self._round, loop)
        return FrontConnection(self._server, self._connections)

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self._connections):
            connection.look(ROUND_S)
        self._timer = loop.call_later(ROUND_S, self._round, loop) if self._connections else None
