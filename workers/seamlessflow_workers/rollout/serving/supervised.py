"""An engine's end of the control protocol between a supervisor and its children (`core.protocol.child`).

It opens the door's port and sends Ready with it, opens the door at Begin, and drains it at Drain. It sends how many
requests are in flight: the first and the last at once, what changes between them at most every COUNT_EVERY_S.
Invariant: Begun follows the opening, and Ended the last answer.
"""

import asyncio
import socket

from seamlessflow.core.protocol.child import (
    Begin,
    Begun,
    Drain,
    Ended,
    FromChild,
    Ping,
    Pong,
    Ready,
    Serving,
    ToChild,
    decode_to_child,
    encode_line,
)
from seamlessflow.runtime.http.server import HttpServer
from seamlessflow_workers.rollout.serving.door import Door, door_limits
from seamlessflow_workers.rollout.serving.served_engine import ServedEngine
from seamlessflow_workers.rollout.serving.server import EngineApp

COUNT_EVERY_S = 0.1


class Supervised:
    """Listening → obeying, until the supervisor is gone."""

    def __init__(self, app: EngineApp, engine: ServedEngine) -> None:
        self.door = Door(app, engine, on_count=self._on_count)
        self.http = HttpServer(self.door, door_limits())
        self._writer: asyncio.StreamWriter | None = None
        self._num_sent = 0
        self._next_count: asyncio.TimerHandle | None = None
        self._draining: asyncio.Task[None] | None = None

    async def obey(self, control: socket.socket, *, port: int) -> None:
        """Follow the supervisor's messages; return when it is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=control)
        self._send(Ready(port=port))
        while line := await _line(reader):
            self._take(decode_to_child(line))
        self._writer.close()

    def _take(self, message: ToChild) -> None:
        if isinstance(message, Ping):
            self._send(Pong())
        elif isinstance(message, Begin):
            self.door.open(token=message.order.front_token, job_id=message.order.job_id)
            self._send(Begun(phase_id=message.order.phase_id))
        elif isinstance(message, Drain):
            self._draining = asyncio.create_task(self._drain(message))

    async def _drain(self, message: Drain) -> None:
        await self.door.drain()
        self._send(Ended(phase_id=message.phase_id))

    def _on_count(self) -> None:
        is_edge = bool(self.door.num_in_flight) != bool(self._num_sent)
        if is_edge:
            self._send_count()
        elif self._next_count is None:
            loop = asyncio.get_running_loop()
            self._next_count = loop.call_later(COUNT_EVERY_S, self._send_count)

    def _send_count(self) -> None:
        if self._next_count is not None:
            self._next_count.cancel()
            self._next_count = None
        if self._num_sent != self.door.num_in_flight:
            self._num_sent = self.door.num_in_flight
            self._send(Serving(num_in_flight=self._num_sent))

    def _send(self, message: FromChild) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_line(message))


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, or nothing if there is none."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return b""
    return line if line.endswith(b"\n") else b""
