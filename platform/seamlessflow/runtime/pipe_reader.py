"""Reads a pipe as bytes arrive, without a task, on whichever event loop runs.

It takes the read end and a function for what arrives. Invariant: it alone owns the descriptor and closes it once, at
the pipe's end or at `close`. The loops' own pipe transports take a file object that owns the descriptor too, and
uvloop's transport closes the number by itself. Whichever of the two comes second may close a file or a connection of
another process that has got the same number.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

READ_BYTES = 65_536


class PipeReader:
    """Open → closed. `on_data` must not raise."""

    def __init__(self, read_end: int, on_data: Callable[[bytes], None]) -> None:
        self.closed = asyncio.Event()
        self._read_end = read_end
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        os.set_blocking(read_end, False)
        self._loop.add_reader(read_end, self._read)

    def close(self) -> None:
        if not self.closed.is_set():
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self.closed.set()

    async def wait_closed(self, *, timeout_s: float) -> None:
        """Wait for the end of the pipe, but no longer than that: another process may have the other end open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.closed.wait()

    def _read(self) -> None:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._on_data(data)
        else:
            self.close()
