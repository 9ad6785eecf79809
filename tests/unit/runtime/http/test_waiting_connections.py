"""Connections that wait are taken up many at a time, however long a round of the loop takes."""

import asyncio
import socket
from typing import Any

import uvicorn
import uvloop

from seamlessflow.runtime.http.server import ACCEPTS_PER_ROUND, listeners

NUM_CLIENTS = 4 * ACCEPTS_PER_ROUND


async def _application(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no client sends a request")


async def _rounds_needed() -> int:
    """Return how many rounds of the loop a server needs to take up all clients that wait."""
    server = uvicorn.Server(
        uvicorn.Config(_application, host="127.0.0.1", port=0, log_config=None, lifespan="off")
    )
    sockets = listeners(server.config)
    sockets[0].listen(NUM_CLIENTS)
    clients = [socket.create_connection(sockets[0].getsockname()) for _ in range(NUM_CLIENTS)]
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets)
    num_rounds = 0
    while len(server.server_state.connections) < NUM_CLIENTS:
        await asyncio.sleep(0)
        num_rounds += 1
    for client in clients:
        client.close()
    await server.shutdown(sockets)
    return num_rounds


def test_a_round_takes_up_many_connections() -> None:
    assert uvloop.run(_rounds_needed()) < NUM_CLIENTS / 2
