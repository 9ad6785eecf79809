"""HTTP servers: a process's own, which takes up many connections at once, and one beside a process's other work.

Takes an ASGI application and limits; serves it until the process ends or the server is stopped. Invariant: every
connection has the protocol of `protocol`, so every server treats a slow or greedy client alike.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from seamlessflow.runtime.http.limits import KEEPALIVE_S, HttpLimits
from seamlessflow.runtime.http.protocol import limited_protocol

BACKLOG = 4096
# libuv takes up one connection per listening socket in each round of its event loop. With one socket, a process whose
# rounds are long would need minutes for a thousand waiting connections, and a health probe would wait for all of them.
ACCEPTS_PER_ROUND = 16


def server_config(application: Any, protocol: type[asyncio.Protocol], **more: Any) -> uvicorn.Config:
    """Return the configuration that all servers have in common; `more` is uvicorn's."""
    common: dict[str, Any] = {
        "backlog": BACKLOG,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": KEEPALIVE_S,
    }
    return uvicorn.Config(application, http=protocol, **common | more)


def server_run(config: uvicorn.Config, inherited: socket.socket | None = None) -> bool:
    """Serve until the process is asked to end; return whether the server started.

    It binds the configured address unless it inherits a socket, and exits if the address is taken.
    """
    server = uvicorn.Server(config)
    server.run(listeners(config, inherited))
    return server.started


def listeners(config: uvicorn.Config, inherited: socket.socket | None = None) -> list[socket.socket]:
    """Return ACCEPTS_PER_ROUND descriptors of one listening socket, each of which the loop reads in a round."""
    first = inherited or config.bind_socket()
    return [first, *(first.dup() for _ in range(ACCEPTS_PER_ROUND - 1))]


class HttpServer:
    """Serves one ASGI application on ports and unix sockets, until it is stopped."""

    def __init__(self, application: Any, limits: HttpLimits) -> None:
        self._config = server_config(
            application,
            limited_protocol(limits),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int = 0) -> int:
        """Listen on this port, or on a free one; return which. Raises OSError."""
        server = await asyncio.get_running_loop().create_server(self._protocol, host, port, backlog=BACKLOG)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def listen_at(self, path: Path) -> None:
        """Listen on a unix socket, whose file a killed predecessor may have left. Raises OSError."""
        path.unlink(missing_ok=True)
        server = await asyncio.get_running_loop().create_unix_server(
            self._protocol, str(path), backlog=BACKLOG
        )
        self._servers.append(server)

    async def stop(self) -> None:
        """Stop listening, break all connections off, and wait until the application noticed."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        while self._state.tasks:
            await asyncio.wait(set(self._state.tasks))

    def _protocol(self) -> asyncio.Protocol:
        return self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}
        )
