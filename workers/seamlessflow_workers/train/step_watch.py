"""Gives up a step that takes far longer than any before it, because a collective hangs or a rank stands still.

It waits for steps, one at a time, and returns their results or raises `StepStalled`. Time counts only while this
process is awake, so suspending the machine does not cost a step.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from seamlessflow.core.liveness.pulse import ASK_EVERY_S, Pulse

FIRST_STEP_LIMIT_S = 7200.0  # kernels are compiled, and nothing is known about the job's steps
SHORTEST_LIMIT_S = 120.0
LONGER_THAN_BEFORE = 10.0  # batches differ in size by less than that
_T = TypeVar("_T")


class StepStalled(RuntimeError):
    """The computing thread returned no result in time."""


class StepWatch:
    """Knows how long the steps of this process take."""

    def __init__(self) -> None:
        self._longest_s: float | None = None

    @property
    def limit_s(self) -> float:
        if self._longest_s is None:
            return FIRST_STEP_LIMIT_S
        return max(SHORTEST_LIMIT_S, LONGER_THAN_BEFORE * self._longest_s)

    async def wait(self, step: Awaitable[_T]) -> _T:
        """Return the result of `step`. Raises StepStalled; then only exiting the process ends the step itself."""
        working, pulse = asyncio.ensure_future(step), Pulse(self.limit_s)
        started_s = now_s = time.monotonic()
        while not working.done():
            if pulse.is_lost:
                raise StepStalled(
                    f"the trainer stalled: a step has been computing for {pulse.silence_s:.0f} s; {self._expectation()}"
                )
            last_s = now_s
            await asyncio.wait({working}, timeout=min(ASK_EVERY_S, pulse.limit_s))
            now_s = time.monotonic()
            pulse.listened(now_s - last_s)
        self._longest_s = max(self._longest_s or 0.0, now_s - started_s)
        return working.result()

    def _expectation(self) -> str:
        if self._longest_s is None:
            return "it is the first of this process"
        return f"the longest before it took {self._longest_s:.1f} s"
