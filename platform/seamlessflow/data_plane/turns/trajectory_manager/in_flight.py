"""A request whose turn is at work: others may cancel it, wait for its end, and ask whether its client is still there.

It runs in the task that serves the request, which `cancel` interrupts. Invariants: the task is interrupted at most
once, and never after `end`.
"""

import asyncio
from typing import Any


class InFlight:
    """At work → cancelled → ended, or at work → ended."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._end: asyncio.Future[None] | None = None
        self._is_cancelled = self._is_ended = False
        self.has_client_left = False

    @classmethod
    def here(cls) -> "InFlight":
        """Return a request that the current task serves."""
        task = asyncio.current_task()
        assert task is not None
        return cls(task)

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def cancel(self) -> None:
        if not (self._is_cancelled or self._is_ended):
            self._is_cancelled = True
            self._task.cancel()

    def client_left(self) -> None:
        """Cancel it: no client waits for the answer."""
        self.has_client_left = True
        self.cancel()

    def cancellation_taken(self) -> bool:
        """Return whether `cancel` interrupted the task, which then goes on; False: another caller wants it to end."""
        return self._is_cancelled and self._task.uncancel() == 0

    def end(self) -> None:
        self._is_ended = True
        if self._end is not None:
            self._end.set_result(None)

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._is_ended:
            return
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._end])
