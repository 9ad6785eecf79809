"""Lets turns begin in turn, job by job and within a job session by session, while more want to begin than can.

A gateway's work for turns shares one event loop. `enter` returns at once if few turns have begun in this round of the
loop; else the turn waits in its session's line, and each round lets the next few begin. So a job that floods the
gateway lengthens its own lines, and another's turn waits for one round. Invariant: each round lets somebody begin who
still waits, so nobody waits for long lines of others.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.routes.bounds import BoundReached, PacedRefusals, SessionBounds
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession

PER_ROUND = 4


class TurnGate:
    """One per process."""

    def __init__(self) -> None:
        # Jobs in the order in which they are next, with their sessions likewise.
        self._lines: OrderedDict[UUID, OrderedDict[UUID, deque[asyncio.Future[None]]]] = OrderedDict()
        self._num_begun = 0
        self._is_round_due = False

    async def enter(self, job_id: UUID, session_id: UUID) -> None:
        """Wait until a turn of this session may begin."""
        if not self._lines and self._num_begun < PER_ROUND:
            self._num_begun += 1
            self._expect_round()
            return
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(job_id, OrderedDict()).setdefault(session_id, deque()).append(entered)
        self._expect_round()
        await entered

    def _expect_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._is_round_due, self._num_begun = False, 0
        while self._lines and self._num_begun < PER_ROUND:
            entered = self._next()
            if not entered.done():  # its client has left
                entered.set_result(None)
                self._num_begun += 1
        if self._num_begun:
            self._expect_round()

    def _next(self) -> "asyncio.Future[None]":
        """Take the first turn of the next session of the next job; both are last in their lines then."""
        job_id, sessions = self._lines.popitem(last=False)
        session_id, waiting = sessions.popitem(last=False)
        entered = waiting.popleft()
        if waiting:
            sessions[session_id] = waiting
        if sessions:
            self._lines[job_id] = sessions
        return entered


@dataclass(frozen=True, slots=True)
class TurnEntry:
    """What all requests of sessions pass on their way in, and out again if they are refused. One per process."""

    bounds: SessionBounds
    gate: TurnGate
    refusals: PacedRefusals

    async def serve(self, session: LiveSession, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve a request of a session in turn. Raises ApiError (429)."""
        try:
            with self.bounds.request(session):
                await self.gate.enter(session.job.job_id, session.key.session_id)
                await serve()
        except BoundReached:
            await self.refusals.wait(session.job.job_id)
            raise
