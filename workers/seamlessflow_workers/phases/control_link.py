"""The supervisor's end of the control socket of one child (`core.protocol.child`).

It sends messages and returns those of the child. Every failure is a ChildFailure with one sentence.
"""

import asyncio
import socket
from typing import Self

from seamlessflow.core.protocol.child import FromChild, ToChild, decode_from_child, encode_line
from seamlessflow_workers.phases.watched import ChildFailure

LINE_BYTES = 1 << 20


class ControlLink:
    """Open → closed. `noun`: what messages call the child."""

    def __init__(self, noun: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._noun = noun
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, noun: str) -> tuple[Self, socket.socket]:
        """Return it with the child's end, which the caller closes once the child has inherited it."""
        ours, theirs = socket.socketpair()
        return cls(noun, *await asyncio.open_unix_connection(sock=ours, limit=LINE_BYTES)), theirs

    def send(self, message: ToChild) -> None:
        self._writer.write(encode_line(message))

    async def receive(self) -> FromChild:
        """Return the next message. Raises ChildFailure."""
        try:
            line = await self._reader.readline()
            if not line:
                raise ChildFailure(f"{self._noun} closed its control socket")
            return decode_from_child(line)
        # A line too long, or no message (msgspec's errors are ValueErrors).
        except (ConnectionError, ValueError) as error:
            raise ChildFailure(f"{self._noun} broke the control protocol: {error}") from error

    def close(self) -> None:
        self._writer.close()
