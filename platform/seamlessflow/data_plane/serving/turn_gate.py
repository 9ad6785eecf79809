"""Lets turns begin in turn, job by job and within a job session by session, while more want to begin than can.

All of a gateway's turns use one event loop. `enter` returns at once if few turns have begun in this round of the
loop and the job may use more of it; else the turn waits in its session's line, and each round lets the next few begin.
So a job that floods the gateway lengthens its own lines, and leaves the loop free for the turns of others. Invariant:
no turn waits for long lines of other jobs, and each job has its quota of the loop's time (`LoopQuotas`).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.core.admission.loop_quotas import LoopQuotas, RequestUse
from seamlessflow.data_plane.serving.bounds import BoundReached, PacedRefusals, SessionBounds
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.runtime.timed_steps import timed

PER_ROUND = 4
LOOK_AGAIN_S = 0.002  # whether a job may use more of the loop


class TurnGate:
    """One per process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._quotas = LoopQuotas()
        # Jobs in the order in which they are next, with their sessions likewise.
        self._lines: OrderedDict[UUID, OrderedDict[UUID, deque[asyncio.Future[RequestUse]]]] = OrderedDict()
        self._num_begun = 0
        self._round_due: asyncio.Handle | None = None  # a timer, if no job that waits may begin a turn now

    async def enter(self, job_id: UUID, session_id: UUID) -> RequestUse:
        """Wait until a turn of this session may begin. Returns what counts its use of the loop."""
        if job_id not in self._lines and self._num_begun < PER_ROUND and self._may_begin(job_id):
            self._num_begun += 1
            self._expect_round()
            return self._quotas.begin(job_id)
        entered: asyncio.Future[RequestUse] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(job_id, OrderedDict()).setdefault(session_id, deque()).append(entered)
        self._expect_round()
        return await entered

    def refused(self, job_id: UUID) -> None:
        """Count that a request of the job asked for more than its bounds allow."""
        self._quotas.refused(job_id)

    def _may_begin(self, job_id: UUID) -> bool:
        return self._quotas.may_begin(job_id, self._clock())

    def _expect_round(self) -> None:
        if self._round_due is None:
            self._round_due = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._round_due, self._num_begun = None, 0
        while self._num_begun < PER_ROUND and (job_id := self._next_job()) is not None:
            entered = self._next(job_id)
            if not entered.done():  # its client has left
                entered.set_result(self._quotas.begin(job_id))
                self._num_begun += 1
        if self._num_begun:
            self._expect_round()
        elif self._lines:
            self._round_due = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._round)

    def _next_job(self) -> UUID | None:
        return next((job_id for job_id in self._lines if self._may_begin(job_id)), None)

    def _next(self, job_id: UUID) -> asyncio.Future[RequestUse]:
        """Take the first turn of the next session of the job; both are last in their lines then."""
        sessions = self._lines.pop(job_id)
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

    async def serve(self, session: LiveSession, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Serve a request of a session in turn. Raises ApiError (429)."""
        job_id = session.job.job_id
        try:
            with self.bounds.request(session):
                use = await self.gate.enter(job_id, session.key.session_id)
                try:
                    await timed(serve(), use.add)
                finally:
                    use.end()
        except BoundReached:
            self.gate.refused(job_id)
            await self.refusals.wait(job_id)
            raise
