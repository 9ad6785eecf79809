"""Keeps live jobs and sessions in memory, reads others back from their rows, and drops the longest idle ones.

Invariant: sessions without turns in flight or kept for a retry never take more memory than `RegistryLimits` allows.
"""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from seamlessflow.core.job_spec import InvalidJobSpec
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.groups.group_rows import key_digest, key_session
from seamlessflow.data_plane.store.protocols import TurnStore
from seamlessflow.data_plane.store.turns.node_rows import SessionKey
from seamlessflow.data_plane.store.turns.sessions import StoredAttempt
from seamlessflow.data_plane.turns.held_time import SessionClocks
from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import EarlierAnswers
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob, LiveSession, Turn, live_job
from seamlessflow.data_plane.turns.trajectory_manager.turn import turn_partial_rows
from seamlessflow.runtime.artifacts.opening import InvalidRoot
from seamlessflow.runtime.artifacts.store import ArtifactMissing, StoreError

MAX_JOBS = 256
MAX_LEFT = 512  # closed sessions whose unfinished turns the next attempts of their slots may continue


def job_not_found(job_id: UUID) -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND, f"There is no job {show_id(IdKind.JOB, job_id)}.", code="job_not_found"
    )


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """How much a process keeps in memory; what it drops is read back with the session's next request."""

    max_sessions: int = 20_000
    max_bytes: int = 1 << 30


def _tell_nobody(_: UUID) -> None:
    """Do nothing: there is no other gateway."""


class Registry:
    """Holds the live jobs and sessions of this process."""

    def __init__(
        self,
        store: TurnStore,
        held: SessionClocks,
        limits: RegistryLimits,
        *,
        tell_over: Callable[[UUID], None] = _tell_nobody,
        artifact_root: str = "",
    ) -> None:
        """`tell_over` gets the sessions that are over and not in this process's memory.

        `artifact_root`: the store from which this host fetches the files of jobs, unless they are in its own folders.
        """
        self.store = store
        self._held = held
        self._limits = limits
        self._tell_over = tell_over
        self._artifact_root = artifact_root
        self._sizes: dict[UUID, int] = {}
        self._num_bytes = 0
        self._sessions: OrderedDict[UUID, LiveSession] = OrderedDict()
        self._left: OrderedDict[UUID, LiveSession] = OrderedDict()
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
        """Return what the session gets of an earlier attempt of its slot, with what was left unfinished here."""
        if session.may_resume and session.earlier is None:
            stored = await self.store.earlier(session.key)
            left = None if stored is None else self._left.get(stored.session_id)
            if session.earlier is None:  # another request may have read them meanwhile
                session.earlier = _earlier_answers(session, stored, left)
        return session.earlier

    def live(self, session_id: UUID) -> LiveSession | None:
        """Return a session if it is in memory."""
        return self._sessions.get(session_id)

    def doubted_s(self, session_id: UUID, job_id: UUID, now_s: float) -> float:
        """Return how long a session of the job has waited for engines that may be stalled."""
        session = self._sessions.get(session_id)
        if session is None or session.job.job_id != job_id:
            return 0.0
        return session.affinity.hold.doubted_s(now_s)

    def begin(
        self,
        key: SessionKey,
        *,
        job: LiveJob,
        group_id: UUID,
        api_key: str,
        evaluation_version: int | None,
        attempt: int,
    ) -> None:
        """Add a session that this gateway has just opened; it has no turns to read back."""
        session = LiveSession(key, job, group_id, key_digest(api_key), True, evaluation_version, attempt)
        session.affinity.hold = self._held.clock_new(key)
        self._add(session)

    def forget(self, session_id: UUID) -> None:
        """Drop a session that is over, or whose tree may disagree with its rows; its next request reads it back."""
        self._drop(session_id)
        metrics.LIVE_SESSIONS.set(len(self._sessions))

    def close(self, session_id: UUID) -> None:
        """Close a session that has its outcome, here or at the gateway that serves it."""
        if not self.close_here(session_id):
            self._tell_over(session_id)

    def close_here(self, session_id: UUID) -> bool:
        """Cancel the turns in flight of a session and accept no new ones. Returns False if it is not in memory."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.is_open = False
        if session.job.spec.environment.resumes_failed:
            self._leave(session)
        for flight in session.in_flight.values():
            flight.cancel()
        self.forget(session_id)
        return True

    def _leave(self, session: LiveSession) -> None:
        """Keep a closed session with unfinished turns or untaken answers for the next attempt of its slot."""
        if session.in_flight or session.partials or (session.earlier and session.earlier.num_bytes):
            self._left[session.key.session_id] = session
        while len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)

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
        try:
            # A tokenizer may have many megabytes, and may have to be fetched.
            job = await asyncio.to_thread(live_job, row, artifact_root=self._artifact_root)
        except (ModelUnusable, TemplateRefused, InvalidJobSpec, InvalidRoot, ArtifactMissing) as error:
            raise ApiError(
                HTTPStatus.BAD_REQUEST, f"The job cannot be served: {error}.", code="job_unusable"
            ) from error
        except StoreError as error:
            message = f"The job's files cannot be fetched now: {error}."
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message, code="files_unavailable") from error
        job.is_over = row.state in TERMINAL_JOB_STATES
        self._jobs[job_id] = job
        while len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)

    async def _load_session(self, session_id: UUID) -> None:
        stored = await self.store.session(session_id)
        if stored is None:
            return
        row = stored.row
        hold = await self._held.clock_load(stored.key)
        session = LiveSession(
            key=stored.key,
            job=await self.job(row.job_id),
            group_id=row.group_id,
            key_digest=row.key_digest,
            is_open=row.state is SessionState.OPEN,
            evaluation_version=row.evaluation_version,
            attempt=row.attempt,
        )
        session.affinity.hold = hold
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
        self._sessions.pop(session_id, None)
        self._num_bytes -= self._sizes.pop(session_id, 0)


def _earlier_answers(
    session: LiveSession, stored: StoredAttempt | None, left: LiveSession | None
) -> EarlierAnswers:
    if stored is None:
        return EarlierAnswers()
    rows = list(stored.nodes)
    if left is not None and len(left.tree.nodes) == len(rows):  # no turn of it was refused
        for partial in [partial for kept in left.partials.values() for partial in kept]:
            rows += turn_partial_rows(partial.turn, duration_s=0.0)
        left.partials.clear()
    answers = EarlierAnswers.of(rows)
    if left is not None and left.earlier is not None:
        answers.keep_all(left.earlier)
    answers.leave_out(session.tree)
    return answers
