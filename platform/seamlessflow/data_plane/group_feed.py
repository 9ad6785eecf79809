"""Rollout groups for agent runners: leased again when abandoned, admitted while the bounds allow, settled by verdicts.

All state is in PostgreSQL. A lease is one transaction under the job's lock, the end of a session one under its group's;
this module only waits and wakes.
"""

import datetime
import logging
import time
from http import HTTPStatus

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import (
    GroupLeaseReply,
    GroupLeaseRequest,
    LeasedGroup,
    SessionFinish,
)
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.errors import ApiError, bad_request
from seamlessflow.data_plane.group_admission import Admission, evaluation_admission, training_admission
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.groups import (
    OpenGroup,
    group_insert,
    group_lock,
    group_settle,
    groups_hold,
    groups_leasable,
    job_lock,
    sessions_abandon,
    sessions_insert,
    slots_read,
)
from seamlessflow.data_plane.store.jobs import month_of, phase_is_live
from seamlessflow.data_plane.store.node_rows import SessionKey
from seamlessflow.data_plane.store.sessions import SessionVerdict, session_end, session_read
from seamlessflow.data_plane.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.trajectory_manager.registry import Registry
from seamlessflow.data_plane.wakes import JobWakes, changed

log = logging.getLogger(__name__)

POLL_S = 0.25
EVALUATION_POLL_S = 1.0  # publications wake it
MAX_WAIT_S = 60.0
MAX_METRIC_CHARS = 120


class GroupFeed:
    def __init__(self, settings: Settings, pool: Pool, registry: Registry, wakes: JobWakes) -> None:
        self._settings = settings
        self._pool = pool
        self._registry = registry
        self._wakes = wakes

    async def lease(self, claims: PhaseClaims, request: GroupLeaseRequest) -> GroupLeaseReply:
        """Groups to run now; waits up to `wait_s` for some. Raises ApiError (409) for a phase that is over."""
        job = await self._registry.job(claims.job_id)
        deadline_s = time.monotonic() + min(max(request.wait_s, 0.0), MAX_WAIT_S)
        while True:
            ticket = self._wakes.ticket(claims.job_id)
            reply = await self._lease_once(claims, request, job)
            if reply.groups or time.monotonic() >= deadline_s:
                return reply
            poll_s = EVALUATION_POLL_S if request.is_evaluation else POLL_S
            await changed(ticket, timeout_s=min(poll_s, max(0.0, deadline_s - time.monotonic())))

    async def finish(self, claims: PhaseClaims, finish: SessionFinish) -> None:
        """Note how an episode ended; saying it again changes nothing. Raises ApiError."""
        if any("\0" in name or len(name) > MAX_METRIC_CHARS for name in finish.metrics):
            message = f"Names in metrics have at most {MAX_METRIC_CHARS} characters and no NUL."
            raise bad_request(message, param="metrics")
        verdict = SessionVerdict(
            reward=0.0 if finish.is_timeout and finish.reward is None else finish.reward,
            reason=(finish.failure or "").replace("\0", "\ufffd"),  # text columns hold no NUL
            is_timeout=finish.is_timeout,
            is_handed_back=finish.is_handed_back and finish.reward is None and not finish.is_timeout,
            metrics=finish.metrics,
        )
        settled = None
        job = await self._registry.job(claims.job_id)
        async with self._pool.connection() as connection, connection.transaction():
            session = await session_read(connection, finish.session_id)
            if session is None or session.job_id != claims.job_id:
                raise ApiError(HTTPStatus.NOT_FOUND, "There is no such session in this job.")
            if session.state is not SessionState.OPEN:
                return
            await phase_require_live(connection, claims)
            # Not the job's lock: sessions end in bursts, and only those of one group have to wait for one another.
            await group_lock(connection, session.group_id)
            if await session_end(connection, finish.session_id, verdict):
                settled = _count(await group_settle(connection, session.group_id, job.spec))
        self._registry.close(finish.session_id)
        if settled is not None:
            self._wakes.wake(claims.job_id)

    async def _lease_once(
        self, claims: PhaseClaims, request: GroupLeaseRequest, job: LiveJob
    ) -> GroupLeaseReply:
        leased: list[LeasedGroup] = []
        room = request.max_sessions
        now = datetime.datetime.now(datetime.UTC)
        async with self._pool.connection() as connection, connection.transaction():
            await phase_require_live(connection, claims)
            await job_lock(connection, claims.job_id)
            state = GroupState.EVALUATING if request.is_evaluation else GroupState.OPEN
            held = await groups_leasable(connection, claims, state)
            mine = [group.group_id for group in held if not group.is_abandoned]
            for group in held:
                if room <= 0:
                    break
                taken = await self._take(connection, group, job, claims, room, now)
                room -= len(taken.sessions) if taken else 0
                if taken:
                    mine.append(group.group_id)
                    leased.append(taken)
            admit = evaluation_admission if request.is_evaluation else training_admission
            admission = Admission() if job.is_over else await admit(connection, job)
            for offset in range(admission.num_new):
                if room <= 0:
                    break
                new = await admission.group(connection, job, admission.first_index + offset)
                group = await group_insert(connection, new)
                taken = await self._take(connection, group, job, claims, room, now)
                room -= len(taken.sessions) if taken else 0
                mine.append(group.group_id)
                leased += [taken] if taken else []
            await groups_hold(connection, mine, claims, self._settings.group_lease_s)
        for taken in leased:
            self._begin(taken, job, claims, now)
        return GroupLeaseReply(groups=leased, is_admission_closed=admission.num_new == 0)

    async def _take(
        self,
        connection: Connection,
        group: OpenGroup,
        job: LiveJob,
        claims: PhaseClaims,
        room: int,
        now: datetime.datetime,
    ) -> LeasedGroup | None:
        """New attempts for the slots of a group that may run, at most `room`."""
        if group.is_abandoned:
            for session_id in await sessions_abandon(connection, group.group_id):
                self._registry.close(session_id)
            if _count(await group_settle(connection, group.group_id, job.spec)) is not None:
                return None
        runnable = [slot for slot in await slots_read(connection, group) if slot.may_run][:room]
        if not runnable:
            return None
        sessions = await sessions_insert(
            connection, group, runnable, project_id=claims.project_id, job_id=claims.job_id, now=now
        )
        return LeasedGroup(
            group_id=group.group_id,
            index=group.index,
            task=group.task,
            sessions=sessions,
            evaluation_version=group.evaluation_version,
        )

    def _begin(
        self, group: LeasedGroup, job: LiveJob, claims: PhaseClaims, opened_at: datetime.datetime
    ) -> None:
        """Its sessions may speak."""
        for session in group.sessions:
            key = SessionKey(session.session_id, month_of(opened_at), claims.project_id, claims.job_id)
            self._registry.begin(
                key,
                job=job,
                group_id=group.group_id,
                api_key=session.api_key,
                evaluation_version=group.evaluation_version,
            )


async def phase_require_live(connection: Connection, claims: PhaseClaims) -> None:
    """Raises ApiError (409) unless the phase still runs under its fence."""
    if not await phase_is_live(connection, claims):
        raise ApiError(HTTPStatus.CONFLICT, "The phase is over or its fence is old.", code="stale_fence")


def _count(state: GroupState | None) -> GroupState | None:
    if state is GroupState.READY:
        metrics.GROUPS_READY.inc()
    elif state is GroupState.DROPPED:
        metrics.GROUPS_DROPPED.inc()
    elif state is GroupState.EVALUATED:
        metrics.GROUPS_EVALUATED.inc()
    return state
