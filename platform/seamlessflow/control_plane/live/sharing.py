"""Looks up and encodes one snapshot for all sockets that ask for a topic at the same moment.

Takes a topic from a socket that already listens on it; returns the frame of its snapshot, one object for all callers.
Invariant: the look-up whose frame a caller gets begins after the call. A look-up under way may have a number from
before the caller listened, so a caller joins the next one: each delta after its snapshot reaches its mailbox.
At most one look-up of a topic runs and one waits, however many sockets ask.
"""

import asyncio
from collections.abc import Awaitable, Callable

from seamlessflow.control_plane.live.frames import Frame


class SharedSnapshots:
    """Does one look-up for all of its callers: it continues when a caller leaves, and each caller gets its error."""

    def __init__(self, take: Callable[[str], Awaitable[Frame]]) -> None:
        self._take = take
        self._running: dict[str, asyncio.Task[Frame]] = {}
        self._waiting: dict[str, asyncio.Task[Frame]] = {}

    async def get(self, topic: str) -> Frame:
        if topic not in self._waiting:
            self._waiting[topic] = asyncio.create_task(self._run(topic), name=f"snapshot {topic}")
        return await asyncio.shield(self._waiting[topic])

    async def close(self) -> None:
        tasks = [*self._running.values(), *self._waiting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, topic: str) -> Frame:
        if (previous := self._running.get(topic)) is not None:
            await asyncio.wait([previous])
        # From here on no caller joins this look-up.
        self._running[topic] = self._waiting.pop(topic)
        try:
            return await self._take(topic)
        finally:
            del self._running[topic]
