"""Keeps live jobs and sessions in memory, reads others back from their rows, and drops the longest idle ones.

Invariant: sessions without turns in flight or kept for a retry never take more memory than `RegistryLimits` allows.
"""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from uuid import UUID

from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.api_keys import key_digest, key_session
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import SessionKey
from seamlessflow.data_plane.store.turns.protocol import TurnStore
from seamlessflow.data_plane.store.turns.sessions import StoredAttempt
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import EarlierAnswers
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob, LiveSession, Turn
from seamlessflow.data_plane.turns.trajectory_manager.unclaimed import UnclaimedAnswers

MAX_JOBS = 256
MAX_UNTAKEN = 512  # failed sessions that did not come to ask for all answers of earlier attempts


def job_not_found(job_id: UUID) -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND, f"There is no job {show_id(IdKind.JOB, job_id)}.", code="job_not_found"
    )


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """How much a process keeps in memory; a session that it drops is read back with its next request."""

    max_sessions: int = 20_000
    max_bytes: int = 1 << 30


class SessionClocks(Protocol):
    """Gives the stall timers of sessions."""

    def clock_new(self, key: SessionKey) -> StallTimer: ...

    async def clock_load(self, key: SessionKey) -> StallTimer: ...


def _report_nothing(_: UUID, _is_resumed: bool) -> None:
    """Do nothing: there is no other gateway."""


class Registry:
    """The live jobs and sessions of this process."""

    def __init__(
        self,
        store: TurnStore,
        clocks: SessionClocks,
        limits: RegistryLimits,
        load_job: Callable[[JobRow], LiveJob],
        *,
        report_over: Callable[[UUID, bool], None] = _report_nothing,
    ) -> None:
        """`load_job` may block: it runs in a thread.

        `report_over` gets the sessions that are over and not in this process's memory, and whether they are resumed.
        """
        self.store = store
        self._clocks = clocks
        self._limits = limits
        self._read_job = load_job
        self._report_over = report_over
        self._sizes: dict[UUID, int] = {}
        self._num_bytes = 0
        self._sessions: OrderedDict[UUID, LiveSession] = OrderedDict()
        self._untaken: OrderedDict[UUID, EarlierAnswers] = OrderedDict()
        self.unclaimed = UnclaimedAnswers()
        self._jobs: OrderedDict[UUID, LiveJob] = OrderedDict()
        self._loading: dict[UUID, asyncio.Future[None]] = {}
        self._spoken_groups: set[UUID] = set()
        self._spoken_sessions: dict[UUID, float] = {}
        self._growing: dict[UUID, dict[UUID, Turn]] = {}

    def turn_begin(self, turn: Turn) -> None:
        """List the turn as growing in its group until `turn_end`."""
        self._growing.setdefault(turn.session.group_id, {})[turn.turn_id] = turn

    def turn_end(self, turn: Turn) -> None:
        group_id = turn.session.group_id
        if turn.session.key.session_id in self._sessions:
            self._measure(turn.session)
        turns = self._growing.get(group_id, {})
        if turns.get(turn.turn_id) is turn:  # a retry may have taken it over
            del turns[turn.turn_id]
            if not turns:
                del self._growing[group_id]

    def turns_growing(self, group_id: UUID) -> list[Turn]:
        return list(self._growing.get(group_id, {}).values())

    @property
    def jobs(self) -> list[LiveJob]:
        return list(self._jobs.values())

    @property
    def sessions(self) -> list[LiveSession]:
        return list(self._sessions.values())

    def groups_spoken(self) -> set[UUID]:
        """Return the groups whose sessions have sent requests since the last call."""
        spoken, self._spoken_groups = self._spoken_groups, set()
        return spoken

    def sessions_spoken(self) -> dict[UUID, float]:
        """Return the times to live of external sessions with requests since the last call or with turns in flight."""
        spoken, self._spoken_sessions = self._spoken_sessions, {}
        for session in self._sessions.values():
            if session.in_flight and (ttl_s := session.job.session_ttl_s) is not None:
                spoken[session.key.session_id] = ttl_s
        return spoken

    async def job(self, job_id: UUID) -> LiveJob:
        """Return a live job. Raises ApiError: 404 if it does not exist, 400 if it cannot be served."""
        if job_id not in self._jobs:
            await self._once(job_id, self._load_job)
        self._jobs.move_to_end(job_id)
        return self._jobs[job_id]

    async def session_by_key(self, api_key: str) -> LiveSession:
        """Return the session that an API key belongs to. Raises ApiError (401)."""
        refused = ApiError(
            HTTPStatus.UNAUTHORIZED, "The API key belongs to no session.", code="invalid_api_key"
        )
        session_id = key_session(api_key)
        session = None if session_id is None else await self.session(session_id)
        if session is None or not hmac.compare_digest(session.key_digest, key_digest(api_key)):
            raise refused
        self._spoken_groups.add(session.group_id)
        if (ttl_s := session.job.session_ttl_s) is not None:
            self._spoken_sessions[session.key.session_id] = ttl_s
        return session

    async def session(self, session_id: UUID) -> LiveSession | None:
        if session_id not in self._sessions:
            await self._once(session_id, self._load_session)
        session = self._sessions.get(session_id)
        if session is not None:
            self._sessions.move_to_end(session_id)
        return session

    async def earlier(self, session: LiveSession) -> EarlierAnswers | None:
        """Return the recorded answers that the session gets of an earlier attempt of its slot."""
        if session.may_resume and session.earlier is None:
            stored = await self._attempt_to_resume(session)
            if session.earlier is None:  # another request may have read them meanwhile
                session.earlier = self._earlier_answers(session, stored)
        return session.earlier

    async def _attempt_to_resume(self, session: LiveSession) -> StoredAttempt | None:
        """Return the attempt once no turn of an earlier one is being recorded."""
        while True:
            stored = await self.store.earlier(session.key)
            if stored is None:
                self.unclaimed.drop(session.slot_key)  # it begins anew
                return None
            for session_id in stored.failed:  # another gateway may have ended one a moment ago
                self.close_here(session_id, is_resumed=True)
            if not await self.unclaimed.has_waited(session.slot_key):
                return stored

    def _earlier_answers(self, session: LiveSession, stored: StoredAttempt | None) -> EarlierAnswers:
        if stored is None:
            return EarlierAnswers()
        answers = EarlierAnswers.of(stored.nodes, without=self.unclaimed.sources(session.slot_key))
        if (untaken := self._untaken.get(stored.session_id)) is not None:
            answers.keep_all(untaken)
        answers.leave_out(session.tree)
        return answers

    def live(self, session_id: UUID) -> LiveSession | None:
        """Return a session if it is in memory."""
        return self._sessions.get(session_id)

    def doubted_s(self, session_id: UUID, job_id: UUID, now_s: float) -> float:
        """Return how long a session of the job has waited for engines that may be stalled."""
        session = self._sessions.get(session_id)
        if session is None or session.job.job_id != job_id:
            return 0.0
        return session.affinity.stall.doubted_s(now_s)

    def begin(
        self,
        key: SessionKey,
        *,
        job: LiveJob,
        group_id: UUID,
        api_key: str,
        evaluation_version: int | None,
        slot: int,
        attempt: int,
    ) -> None:
        """Add a session that this gateway has just opened; it has no turns to read back."""
        digest = key_digest(api_key)
        session = LiveSession(key, job, group_id, digest, True, evaluation_version, slot, attempt)
        session.affinity.stall = self._clocks.clock_new(key)
        self._add(session)

    def forget(self, session_id: UUID) -> None:
        """Drop a session that is over, or whose tree may disagree with its rows; its next request reads it back."""
        self._drop(session_id)
        metrics.LIVE_SESSIONS.set(len(self._sessions))

    def close(self, session_id: UUID, *, is_resumed: bool = False) -> None:
        """Close a session that is over, here or at the gateway that serves it.

        `is_resumed`: it failed in a way after which the next attempt of its slot may go on with its answers.
        """
        if not self.close_here(session_id, is_resumed=is_resumed):
            self._report_over(session_id, is_resumed)

    def close_here(self, session_id: UUID, *, is_resumed: bool = False) -> bool:
        """Cancel the turns in flight of a session and accept no new ones. Returns False if it is not in memory.

        What its turns have begun to sample goes on growing if the next attempt may ask for it.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.is_open, session.is_resumed = False, is_resumed and session.job.resumes_failed
        flights = list(session.in_flight.values())
        if session.is_resumed:
            self.unclaimed.expect(session.slot_key, session.job.job_id, flights)
            self._keep_untaken(session)
        else:
            self.unclaimed.drop(session.slot_key)
        for flight in flights:
            flight.cancel()
        self.forget(session_id)
        return True

    def leave(self, turn: Turn) -> None:
        """Keep the answers of a turn that its session no longer gets, if the slot's next attempt may ask for them."""
        session, begun = turn.session, turn.left()
        if session.may_be_resumed and begun is not None:
            self.unclaimed.add(session.slot_key, session.job.job_id, begun)
        else:
            turn.stop()

    def stop(self, job_id: UUID) -> None:
        """Stop the answers of a job whose clients have left."""
        self.unclaimed.drop_job(job_id)
        for session in self._sessions.values():
            if session.job.job_id == job_id:
                for partial in session.all_partials():
                    partial.turn.stop()

    def _keep_untaken(self, session: LiveSession) -> None:
        if session.earlier is not None and session.earlier.num_bytes:
            self._untaken[session.key.session_id] = session.earlier
        while len(self._untaken) > MAX_UNTAKEN:
            self._untaken.popitem(last=False)

    async def _once(self, key: UUID, load: Callable[[UUID], Awaitable[None]]) -> None:
        """Load a job or session once for all concurrent requests for it."""
        while (loading := self._loading.get(key)) is not None:
            await asyncio.wait([loading])
        if key in self._sessions or key in self._jobs:
            return
        self._loading[key] = asyncio.get_running_loop().create_future()
        try:
            await load(key)
        finally:
            self._loading.pop(key).set_result(None)

    async def _load_job(self, job_id: UUID) -> None:
        row = await self.store.job(job_id)
        if row is None:
            raise job_not_found(job_id)
        # A tokenizer may have many megabytes, and may have to be fetched.
        job = await asyncio.to_thread(self._read_job, row)
        job.is_over = row.state in TERMINAL_JOB_STATES
        self._jobs[job_id] = job
        while len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)

    async def _load_session(self, session_id: UUID) -> None:
        stored = await self.store.session(session_id)
        if stored is None:
            return
        row = stored.row
        stall = await self._clocks.clock_load(stored.key)
        session = LiveSession(
            key=stored.key,
            job=await self.job(row.job_id),
            group_id=row.group_id,
            key_digest=row.key_digest,
            is_open=row.state is SessionState.OPEN,
            evaluation_version=row.evaluation_version,
            slot=row.slot,
            attempt=row.attempt,
        )
        session.affinity.stall = stall
        session.restore(stored.nodes)
        self._add(session)

    def _add(self, session: LiveSession) -> None:
        self._sessions[session.key.session_id] = session
        self._measure(session)
        metrics.LIVE_SESSIONS.set(len(self._sessions))

    def _measure(self, session: LiveSession) -> None:
        """Count a session's memory again, after it has grown, and drop idle sessions if there is too much."""
        session_id, num_bytes = session.key.session_id, session.num_bytes
        self._num_bytes += num_bytes - self._sizes.get(session_id, 0)
        self._sizes[session_id] = num_bytes
        if self._is_full():
            self._evict()
        metrics.TREE_BYTES.set(self._num_bytes)

    def _is_full(self) -> bool:
        return len(self._sessions) > self._limits.max_sessions or self._num_bytes > self._limits.max_bytes

    def _evict(self) -> None:
        idle = (s for s in list(self._sessions.values())[:-1] if not s.in_flight and not s.partials)
        while self._is_full() and (session := next(idle, None)) is not None:
            self._drop(session.key.session_id)
            metrics.EVICTIONS.inc()

    def _drop(self, session_id: UUID) -> None:
        session = self._sessions.pop(session_id, None)
        for partial in session.all_partials() if session else ():
            self.leave(partial.turn)
        self._num_bytes -= self._sizes.pop(session_id, 0)
