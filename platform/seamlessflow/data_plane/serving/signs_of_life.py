"""Writes a stream's chunks, and a sign of life whenever none was written for a while.

No task waits for chunks: a timer looks whether one was written, and only a sign of life is sent by a task.
Invariant: no sign of life is written after the block.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType


class SignsOfLife:
    """Use it as a context around the time in which chunks may be late. One per stream."""

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], sign: Callable[[], bytes], every_s: float
    ) -> None:
        self._send = send
        self._sign = sign
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._written_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._signing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._written_s = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._look)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._signing is not None:
            self._signing.cancel()
            await asyncio.wait([self._signing])

    def sign_soon(self) -> None:
        """Show a sign of life at once, unless one is on its way."""
        if self._timer is not None and (self._signing is None or self._signing.done()):
            self._signing = self._loop.create_task(self.write(self._sign()))

    async def write(self, chunk: bytes) -> None:
        self._written_s = self._loop.time()
        await self._send(chunk)

    def _look(self) -> None:
        left_s = self._written_s + self._every_s - self._loop.time()
        if left_s <= 0:
            self.sign_soon()
        self._timer = self._loop.call_later(left_s if left_s > 0 else self._every_s, self._look)
