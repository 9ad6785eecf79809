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
from seamlessflow.data_plane.store.admission import group_counts, num_admissible
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.groups import (
    NewGroup,
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
from seamlessflow.data_plane.task_choice import task_choose
from seamlessflow.data_plane.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.trajectory_manager.registry import Registry
from seamlessflow.data_plane.wakes import JobWakes, changed

log = logging.getLogger(__name__)

POLL_S = 0.25
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
            await changed(ticket, timeout_s=min(POLL_S, max(0.0, deadline_s - time.monotonic())))

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
            held = await groups_leasable(connection, claims)
            mine = [group.group_id for group in held if not group.is_abandoned]
            for group in held:
                if room <= 0:
                    break
                taken = await self._take(connection, group, job, claims, room, now)
                room -= len(taken.sessions) if taken else 0
                if taken:
                    mine.append(group.group_id)
                    leased.append(taken)
            counts = await group_counts(connection, claims.job_id)
            num_new = 0 if job.is_over else num_admissible(job.spec, counts)
            for offset in range(num_new):
                if room <= 0:
                    break
                group = await self._admit(connection, job, counts.next_index + offset)
                taken = await self._take(connection, group, job, claims, room, now)
                room -= len(taken.sessions) if taken else 0
                mine.append(group.group_id)
                leased += [taken] if taken else []
            await groups_hold(connection, mine, claims, self._settings.group_lease_s)
        for taken in leased:
            for session in taken.sessions:
                key = SessionKey(session.session_id, month_of(now), claims.project_id, claims.job_id)
                self._registry.begin(key, job=job, group_id=taken.group_id, api_key=session.api_key)
        return GroupLeaseReply(groups=leased, is_admission_closed=num_new == 0)

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
        return LeasedGroup(group_id=group.group_id, index=group.index, task=group.task, sessions=sessions)

    async def _admit(self, connection: Connection, job: LiveJob, index: int) -> OpenGroup:
        which, task = await task_choose(connection, job, index)
        new = NewGroup(
            project_id=job.project_id,
            job_id=job.job_id,
            index=index,
            task_index=which,
            task=task,
            size=job.spec.rollout.group_size,
        )
        return await group_insert(connection, new)


async def phase_require_live(connection: Connection, claims: PhaseClaims) -> None:
    """Raises ApiError (409) unless the phase still runs under its fence."""
    if not await phase_is_live(connection, claims):
        raise ApiError(HTTPStatus.CONFLICT, "The phase is over or its fence is old.", code="stale_fence")


def _count(state: GroupState | None) -> GroupState | None:
    if state is GroupState.READY:
        metrics.GROUPS_READY.inc()
    elif state is GroupState.DROPPED:
        metrics.GROUPS_DROPPED.inc()
    return state
