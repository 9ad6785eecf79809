"""The listening sockets of an HTTP server, which takes up many waiting connections at once.

libuv takes up one connection per listening socket in each round of its event loop. So a process whose rounds are long
would need minutes for a thousand waiting connections, and whoever connects after them, a health probe for example,
would wait for all of these. Takes the server's configuration; returns several descriptors of one socket, from each of
which the loop takes one connection in a round.
"""

import socket

import uvicorn

ACCEPTS_PER_ROUND = 16


def listeners(config: uvicorn.Config, inherited: socket.socket | None = None) -> list[socket.socket]:
    """Bind the configured address, unless a socket was inherited. Exits if the address is taken."""
    first = inherited or config.bind_socket()
    return [first, *(first.dup() for _ in range(ACCEPTS_PER_ROUND - 1))]
