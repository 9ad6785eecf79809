"""Sends the head of an answer together with what follows it, so that both are one segment and one system call.

The server writes an answer's head and body apart. `JoinedWrites` keeps the head until the next write, but only until
the event loop's next turn: a head that nothing follows is sent alone. Invariant: bytes leave in the order in which
they were written.
"""

import asyncio


class JoinedWrites:
    """The transport of one answer, as far as the server uses it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun, self._head = True, data
            self._loop.call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)
