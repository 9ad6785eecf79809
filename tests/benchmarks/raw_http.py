"""Reads HTTP requests at almost no cost, for the engines of benchmarks.

It takes the bytes of one connection, and gives head and body of each request to a subclass, which
writes its answers to the transport. Requests have a `content-length` or no body.
"""

import asyncio
from typing import cast

HEAD_END = b"\r\n\r\n"


class RequestProtocol(asyncio.Protocol):
    """One connection."""

    transport: asyncio.WriteTransport

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's are not subclasses

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(HEAD_END)
        if not separator:
            return
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(rest) >= size:
            self._received = rest[size:]
            self.answer(head, rest[:size])

    def answer(self, head: bytes, body: bytes) -> None:
        """Answer one request."""
        raise NotImplementedError


def whole_answer(body: bytes) -> bytes:
    """Return a JSON answer with its head."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    """Return a chunk of a streamed answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)
