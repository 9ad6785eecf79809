"""Leases rollout groups to agent runners: abandoned groups again, and new groups while the bounds allow.

All state is in PostgreSQL, and a lease is one transaction under the job's lock. `outcomes` takes the ends of the
sessions.
"""

import datetime
import time
from collections.abc import Sequence
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import (
    GroupLeaseReply,
    GroupLeaseRequest,
    LeasedGroup,
)
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.groups.admission import Admission, evaluation_admission, training_admission
from seamlessflow.data_plane.groups.finalization import groups_count, groups_finalize
from seamlessflow.data_plane.groups.lost_leases import LostLeases
from seamlessflow.data_plane.groups.session_keys import SessionKeys
from seamlessflow.data_plane.notifier import MAX_WAIT_S, JobNotifier, changed
from seamlessflow.data_plane.store.connection import Connection, Pool
from seamlessflow.data_plane.store.groups.admission import lull_begin, lull_end
from seamlessflow.data_plane.store.groups.evaluations import evaluation_running
from seamlessflow.data_plane.store.groups.finalization import groups_lock
from seamlessflow.data_plane.store.groups.group_rows import (
    OpenGroup,
    Slot,
    group_insert,
    groups_hold,
    groups_leasable,
    sessions_abandon,
    sessions_insert,
    slots_new,
    slots_read,
)
from seamlessflow.data_plane.store.jobs import month_of, phase_lock
from seamlessflow.data_plane.store.turns.node_rows import SessionKey
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

POLL_S = 0.25
EVALUATION_POLL_S = 1.0  # longer, because publications wake it
RENEW_SHARE = 0.05  # leases of running groups are renewed at most once per this share of their length
_LoopKey = tuple[UUID, bool]  # a phase, and whether its session loop runs evaluations


class GroupFeed:
    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        registry: Registry,
        membership: Membership,
        *,
        openings: JobNotifier,
    ) -> None:
        """`openings` announces that more groups may begin."""
        self._membership = membership
        self._settings = settings
        self._pool = pool
        self._registry = registry
        self._openings = openings
        self._keys = SessionKeys(settings.secret_key)
        self._lost = LostLeases(registry, membership, self._keys)
        # The earliest time at which the leases of a loop's groups are renewed.
        self._renew_at: dict[_LoopKey, datetime.datetime] = {}

    async def lease(self, claims: PhaseClaims, request: GroupLeaseRequest) -> GroupLeaseReply:
        """Lease groups to run now, waiting up to `wait_s` for some. Raises ApiError (409) if the phase is over."""
        job = await self._registry.job(claims.job_id)
        deadline_s = time.monotonic() + min(max(request.wait_s, 0.0), MAX_WAIT_S)
        while True:
            ticket = self._openings.ticket(claims.job_id)
            reply = await self._lease_once(claims, request, job)
            if reply.groups or time.monotonic() >= deadline_s:
                return reply
            poll_s = EVALUATION_POLL_S if request.is_evaluation else POLL_S
            await changed(ticket, timeout_s=min(poll_s, max(0.0, deadline_s - time.monotonic())))

    async def _lease_once(
        self, claims: PhaseClaims, request: GroupLeaseRequest, job: LiveJob
    ) -> GroupLeaseReply:
        leased: list[LeasedGroup] = []
        async with self._pool.connection() as connection, connection.transaction():
            now = await phase_lock(connection, claims)
            state = GroupState.EVALUATING if request.is_evaluation else GroupState.OPEN
            held = await groups_leasable(connection, claims, state)
            own = [group for group in held if not group.is_abandoned]
            again = await self._lost.again(connection, own, claims, request)
            capacity = request.max_sessions - sum(len(group.sessions) for group in again)
            is_due = now >= self._renew_at.get((claims.phase_id, request.is_evaluation), now)
            mine = [group.group_id for group in own if is_due]
            free = [group for group in held if _may_have_room(group, request)]
            known = [group for group in free if not group.is_abandoned]
            slots = await slots_read(connection, known) if known and capacity > 0 else {}
            for group in free:
                if capacity <= 0:
                    break
                taken = await self._take(
                    connection, group, job, claims, capacity, now, slots=slots.get(group.group_id)
                )
                capacity -= len(taken.sessions) if taken else 0
                if taken:
                    mine.append(group.group_id)
                    leased.append(taken)
            admit = evaluation_admission if request.is_evaluation else training_admission
            admission = Admission() if job.is_over else await admit(connection, job)
            for offset in range(admission.num_new):
                if capacity <= 0:
                    break
                new = await admission.group(connection, job, admission.first_index + offset)
                group = await group_insert(
                    connection, new, holder=claims, lease_s=self._settings.group_lease_s
                )
                taken = await self._take(
                    connection, group, job, claims, capacity, now, slots=slots_new(group)
                )
                capacity -= len(taken.sessions) if taken else 0
                leased += [taken] if taken else []
            if mine:
                await groups_hold(connection, mine, claims, self._settings.group_lease_s)
            if leased:
                await lull_end(connection, claims.job_id)
            if capacity > 0 and not request.is_evaluation and not await _evaluation_waits(connection, job):
                await lull_begin(connection, job_id=claims.job_id, project_id=claims.project_id)
        if is_due:
            self._renewed((claims.phase_id, request.is_evaluation), now)
        for taken in leased:
            self._begin(taken, job, claims, now)
        return GroupLeaseReply(groups=again + leased, is_admission_closed=admission.num_new == 0)

    def _renewed(self, loop: _LoopKey, now: datetime.datetime) -> None:
        """Note a renewal. Leases are long, so not every poll has to write the rows of all running groups."""
        self._renew_at = {known: at for known, at in self._renew_at.items() if at > now}
        after_s = self._settings.group_lease_s * RENEW_SHARE
        self._renew_at[loop] = now + datetime.timedelta(seconds=after_s)

    async def _take(
        self,
        connection: Connection,
        group: OpenGroup,
        job: LiveJob,
        claims: PhaseClaims,
        capacity: int,
        now: datetime.datetime,
        *,
        slots: Sequence[Slot] | None = None,
    ) -> LeasedGroup | None:
        """Open attempts in at most `room` slots of the group that may run. Returns None if there are none.

        slots: the group's, if they are known and it is not abandoned.
        """
        if group.is_abandoned:
            for session_id in await sessions_abandon(connection, group.group_id):
                self._registry.close(session_id, is_resumed=True)
            locked = await groups_lock(connection, [group.group_id])
            if finalized := await groups_finalize(connection, locked, job.spec):
                groups_count(finalized.values())
                return None
        if slots is None:
            slots = (await slots_read(connection, [group]))[group.group_id]
        runnable = [slot for slot in slots if slot.may_run][:capacity]
        if not runnable:
            return None
        owner = self._membership.owner(group.group_id)
        sessions = await sessions_insert(
            connection,
            group,
            runnable,
            project_id=claims.project_id,
            job_id=claims.job_id,
            now=now,
            epoch=owner.epoch,
            make_key=self._keys.key,
            base_url=self._membership.client_url(owner),
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
        """Add a group's sessions to the registry, if this gateway serves them, so that they can send requests."""
        owner = self._membership.owner(group.group_id)
        if not self._membership.is_me(owner):
            return
        for session in group.sessions:
            key = SessionKey(
                session.session_id, month_of(opened_at), claims.project_id, claims.job_id, owner.epoch
            )
            self._registry.begin(
                key,
                job=job,
                group_id=group.group_id,
                api_key=session.api_key,
                evaluation_version=group.evaluation_version,
                slot=session.slot,
                attempt=session.attempt,
            )


def _may_have_room(group: OpenGroup, request: GroupLeaseRequest) -> bool:
    """Return whether a slot of the group may be free. Sessions may have been recalled after the group was read."""
    is_recalled = request.held is not None
    return group.is_abandoned or group.has_free_slots or is_recalled


async def _evaluation_waits(connection: Connection, job: LiveJob) -> bool:
    """Return whether held-out tasks have yet to begin; their own session loop asks for them."""
    running = await evaluation_running(connection, job.job_id) if job.spec.evaluation.is_on else None
    return running is not None and running.num_begun < running.num_tasks
