"""The control socket of a child: it receives the supervisor's messages and sends reports.

The other end is the supervisor's. When that closes, this process has no purpose and exits at once. Everything on disk
is written beside its path and renamed, so an abrupt exit loses no more than a kill -9 would.
"""

import asyncio
import logging
import os
import signal
import socket
from typing import NoReturn

from seamlessflow.core.protocol.child import FromChild, Ping, Pong, ToChild, decode_to_child, encode_line
from seamlessflow_workers.process.launch import bind_to_parent

logger = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    bind_to_parent(parent_pid=os.getppid(), death_signal=signal.SIGKILL)


class ControlChannel:
    """Open with `await ControlChannel.open(fd)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, descriptor: int) -> "ControlChannel":
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connection, limit=_MAX_LINE_BYTES))

    def send(self, message: FromChild) -> None:
        self._writer.write(encode_line(message))

    async def flush(self) -> None:
        await self._writer.drain()

    async def receive(self) -> ToChild:
        """Return the next message, after answering pings. Exits the process if the supervisor is gone."""
        while isinstance(message := decode_to_child(await self._line()), Ping):
            self.send(Pong())
        return message

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if not line.endswith(b"\n"):
            end_process(0, "the control socket was closed")
        return line


def end_process(code: int, reason: str) -> NoReturn:
    """Exit without waiting for threads, of which one may be in a long step."""
    logger.info("exiting: %s", reason)
    logging.shutdown()
    os._exit(code)
