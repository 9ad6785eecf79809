"""Lets the answers of a turn grow to their ends, each on its own.

In: a turn, and the function that delivers the deltas of its answers, if its client reads them meanwhile. Failures
become the errors that clients read. Invariant: answers that the slot's next attempt may ask for outlive their request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing

from seamlessflow.data_plane.serving.waiting import client_error
from seamlessflow.data_plane.turns.engines.client import EngineRefused
from seamlessflow.data_plane.turns.engines.pool import JobOver, TooManyWaiting
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta
from seamlessflow.data_plane.turns.rollout_manager import RolloutManager
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn
from seamlessflow.data_plane.turns.trajectory_manager.turn import turn_grow
from seamlessflow.runtime.timed_steps import timed_too

Deliver = Callable[[Choice, Sequence[Delta]], Awaitable[None]]


class TurnGrowth:
    """One per process."""

    def __init__(self, manager: RolloutManager, clock: Callable[[], float]) -> None:
        self._manager = manager
        self._clock = clock

    async def grow(self, turn: Turn, deliver: Deliver | None = None, *, is_streamed: bool = True) -> None:
        """Wait until all answers have ended. `is_streamed`: engines stream them. Raises ApiError."""
        if not turn.session.job.resumes_failed:
            await self._grow_all(turn, deliver, is_streamed=is_streamed)
            return
        turn.growth = asyncio.create_task(self._grow_after(turn, deliver, is_streamed=is_streamed))
        turn.growth.add_done_callback(_take_error)
        await asyncio.shield(turn.growth)

    async def _grow_after(self, turn: Turn, deliver: Deliver | None, *, is_streamed: bool) -> None:
        """Wait until the answers of the earlier attempt grow no more. The task is not charged for this time."""
        if turn.begun is not None and turn.begun.growth is not None and turn.begun.is_growing:
            timer = turn.session.affinity.stall
            timer.begin(self._clock())
            try:
                await asyncio.wait([turn.begun.growth])
            finally:
                turn.begun.growth.cancel()  # if this one was stopped
                timer.end(self._clock())
        await self._grow_all(turn, deliver, is_streamed=is_streamed)

    async def _grow_all(self, turn: Turn, deliver: Deliver | None, *, is_streamed: bool) -> None:
        await _all([self._grow_choice(turn, choice, deliver, is_streamed) for choice in turn.choices])

    async def _grow_choice(
        self, turn: Turn, choice: Choice, deliver: Deliver | None, is_streamed: bool
    ) -> None:
        wait = turn.wait
        try:
            async with aclosing(turn_grow(turn, choice, self._manager, is_streamed=is_streamed)) as growing:
                async for deltas in growing:
                    if deliver is not None and deltas and not wait.is_given_up:
                        await deliver(choice, deltas)
        except (NoEngine, TooManyWaiting, JobOver, EngineRefused) as error:
            if wait.is_given_up and isinstance(error, NoEngine | TooManyWaiting):
                return  # its client has left: the answer stays as it is
            raise client_error(error, wait.waited_s(self._clock())) from error


async def _all(growing: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all concurrently; the first failure cancels the others."""
    if len(growing) == 1:
        await growing[0]
        return
    tasks = [asyncio.create_task(timed_too(one)) for one in growing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _take_error(growth: "asyncio.Task[None]") -> None:
    """Take the error of answers whose client may have left, which asyncio would report as never retrieved."""
    if not growth.cancelled():
        growth.exception()
