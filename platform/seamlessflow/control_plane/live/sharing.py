"""One snapshot for all sockets that ask for the same topic in the same moment: one look-up, one encoding.

Enters: a topic, from a socket that listens on it already. Leaves: the frame of its snapshot, one object for all who
share it. Invariant: the look-up whose frame a caller gets begins after the call. So a caller never joins one under way,
whose number may be older than the caller's listening, but the one after it: each delta beyond the number of its
snapshot reaches its mailbox. Of a topic at most one look-up runs and one waits, however many ask.
"""

import asyncio
from collections.abc import Awaitable, Callable

from seamlessflow.control_plane.live.frames import Frame


class SharedSnapshots:
    """A look-up belongs to all who wait: it goes on when one of them leaves, and what it raises each of them gets."""

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
        # From here on nobody joins.
        self._running[topic] = self._waiting.pop(topic)
        try:
            return await self._take(topic)
        finally:
            del self._running[topic]
