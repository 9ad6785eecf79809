"""Rollout groups and their sessions: leased to agent runners, finished by verdicts.

States move as `core.lifecycle.groups` allows, each by compare-and-set with an event row. A group whose lease ran out
or whose phase is dead is leased again; its unfinished sessions fail and their slots run again until three have failed.
Sessions that a drain handed back (a pause, a retag) fail without counting. Then the group trains on the
k ≥ max(2, G/2) verdicts that it has, or is dropped.
"""

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import (
    GROUP_MOVES,
    RUNNING_GROUP_STATES,
    DropCause,
    GroupState,
    SessionState,
)
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import LeasedSession
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.evaluations import evaluation_finish_if_whole
from seamlessflow.data_plane.store.events import group_event, scheduler_notify
from seamlessflow.data_plane.store.jobs import month_of

MAX_FAILURES = 3
KEY_PREFIX = "sfs_"
_LIVE = sorted(state.value for state in LIVE_PHASE_STATES)
_RUNNING = sorted(state.value for state in RUNNING_GROUP_STATES)
_LEASABLE = """
    SELECT g.id, g.index, g.task, g.size, g.evaluation_version,
           g.lease_phase_id IS DISTINCT FROM %(phase)s OR g.lease_fence IS DISTINCT FROM %(fence)s
    FROM trajectory_group g
    WHERE g.job_id = %(job)s AND g.state = %(state)s AND g.external_key = ''
      AND ((g.lease_phase_id = %(phase)s AND g.lease_fence = %(fence)s) OR g.lease_expires_at IS NULL
           OR g.lease_expires_at < now()
           OR NOT EXISTS (SELECT 1 FROM scheduling_phase p WHERE p.id = g.lease_phase_id
                          AND p.fence = g.lease_fence AND p.state = ANY(%(live)s)))
    ORDER BY g.index FOR UPDATE OF g SKIP LOCKED"""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """A group that a runner may take; `is_abandoned`: whoever held it is gone. Trained if of no evaluation."""

    group_id: UUID
    index: int
    task: dict[str, Any]
    size: int
    evaluation_version: int | None = None
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class NewGroup:
    project_id: UUID
    job_id: UUID
    index: int
    task_index: int | None
    task: dict[str, Any]
    size: int
    evaluation_version: int | None = None
    external_key: str = ""

    @property
    def state(self) -> GroupState:
        return GroupState.OPEN if self.evaluation_version is None else GroupState.EVALUATING


@dataclass(frozen=True, slots=True)
class Slot:
    """The newest attempt of one slot; state None: it never ran. Attempts handed back are no failures."""

    slot: int
    attempt: int
    state: SessionState | None
    num_failures: int = 0

    @property
    def may_run(self) -> bool:
        return self.state is None or (self.state is SessionState.FAILED and self.num_failures < MAX_FAILURES)

    @property
    def is_over(self) -> bool:
        return self.state is SessionState.CLOSED or (
            self.state is SessionState.FAILED and self.num_failures >= MAX_FAILURES
        )


def num_verdicts_needed(size: int) -> int:
    """Verdicts with which a group may train once no slot can run any more."""
    return min(size, max(2, math.ceil(size / 2)))


def session_api_key(session_id: UUID) -> str:
    return f"{KEY_PREFIX}{show_id(IdKind.SESSION, session_id).partition('_')[2]}_{secrets.token_urlsafe(24)}"


def key_digest(api_key: str) -> bytes:
    return hashlib.sha256(api_key.encode()).digest()


async def job_lock(connection: Connection, job_id: UUID) -> None:
    """Serialise group admission and batch assembly of one job, until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [job_id.int & ((1 << 63) - 1)])


async def group_lock(connection: Connection, group_id: UUID) -> None:
    """Serialise what happens to one group, until the transaction ends."""
    await connection.execute("SELECT 1 FROM trajectory_group WHERE id = %s FOR UPDATE", [group_id])


async def groups_leasable(
    connection: Connection, claims: PhaseClaims, state: GroupState = GroupState.OPEN
) -> list[OpenGroup]:
    """Groups in a running state that this phase holds or that nobody holds any more, oldest first, locked."""
    cursor = await connection.execute(
        _LEASABLE,
        {
            "job": claims.job_id,
            "phase": claims.phase_id,
            "fence": claims.fence,
            "live": _LIVE,
            "state": state.value,
        },
    )
    return [OpenGroup(*row) for row in await cursor.fetchall()]


async def group_insert(connection: Connection, group: NewGroup) -> OpenGroup:
    group_id = new_id()
    await connection.execute(
        """INSERT INTO trajectory_group (id, project_id, job_id, index, evaluation_version, external_key, task_index,
                                         task, size, state, reason, num_verdicts, created_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', 0, now())""",
        [
            group_id, group.project_id, group.job_id, group.index, group.evaluation_version, group.external_key,
            group.task_index, Jsonb(group.task), group.size, group.state.value,
        ],
    )  # fmt: skip
    return OpenGroup(group_id, group.index, group.task, group.size, group.evaluation_version)


async def groups_hold(
    connection: Connection, group_ids: list[UUID], claims: PhaseClaims, lease_s: float
) -> None:
    """Lease these groups to a phase, or renew their leases."""
    await connection.execute(
        """UPDATE trajectory_group SET lease_phase_id = %s, lease_fence = %s,
                  lease_expires_at = now() + make_interval(secs => %s) WHERE id = ANY(%s)""",
        [claims.phase_id, claims.fence, lease_s, group_ids],
    )


async def groups_renew(connection: Connection, group_ids: list[UUID], lease_s: float) -> None:
    """Their sessions spoke: whoever holds the groups goes on holding them."""
    await connection.execute(
        """UPDATE trajectory_group SET lease_expires_at = now() + make_interval(secs => %s)
           WHERE id = ANY(%s) AND state = ANY(%s) AND lease_phase_id IS NOT NULL""",
        [lease_s, group_ids, _RUNNING],
    )


async def sessions_abandon(connection: Connection, group_id: UUID) -> list[UUID]:
    """Fail the open sessions of a group whose runner is gone; one that was drained handed them back, told or not."""
    cursor = await connection.execute(
        """UPDATE trajectory_session SET state = 'failed', reason = 'its runner is gone', closed_at = now(),
                  is_handed_back = EXISTS (SELECT 1 FROM trajectory_group g JOIN scheduling_phase p
                                           ON p.id = g.lease_phase_id AND p.fence = g.lease_fence
                                           WHERE g.id = %(group)s AND p.state = 'ended')
           WHERE group_id = %(group)s AND state = 'open' RETURNING id""",
        {"group": group_id},
    )
    return [row[0] for row in await cursor.fetchall()]


async def slots_read(connection: Connection, group: OpenGroup) -> list[Slot]:
    cursor = await connection.execute(
        """SELECT slot, max(attempt), (array_agg(state ORDER BY attempt DESC))[1],
                  count(*) FILTER (WHERE state = 'failed' AND NOT is_handed_back)
           FROM trajectory_session WHERE group_id = %s GROUP BY slot""",
        [group.group_id],
    )
    ran = {
        slot: Slot(slot, attempt, SessionState(state), num_failures)
        for slot, attempt, state, num_failures in await cursor.fetchall()
    }
    return [ran.get(slot, Slot(slot, 0, None)) for slot in range(group.size)]


async def sessions_insert(
    connection: Connection,
    group: OpenGroup,
    slots: Sequence[Slot],
    *,
    project_id: UUID,
    job_id: UUID,
    now: datetime,
) -> list[LeasedSession]:
    """Open the next attempt of each slot, in one round trip."""
    leased = []
    for slot in slots:
        session_id = new_id()
        key = session_api_key(session_id)
        leased.append(
            LeasedSession(session_id=session_id, slot=slot.slot, attempt=slot.attempt + 1, api_key=key)
        )
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """INSERT INTO trajectory_session (id, project_id, job_id, group_id, month, slot, attempt, state, reason,
                   key_digest, is_timeout, is_handed_back, is_late, metrics, num_turns, num_sampled_tokens, opened_at)
               VALUES (%s, %s, %s, %s, %s, %s, %s, 'open', '', %s, false, false, false, '{}', 0, 0, %s)""",
            [
                (
                    session.session_id, project_id, job_id, group.group_id, month_of(now), session.slot,
                    session.attempt, key_digest(session.api_key), now,
                )
                for session in leased
            ],
        )  # fmt: skip
    return leased


async def group_settle(connection: Connection, group_id: UUID, spec: JobSpec) -> GroupState | None:
    """Move an open group on when no slot of it can run any more; call with its sessions' changes in this transaction.

    Returns its new state, or None when it stays open (or was settled before).
    """
    cursor = await connection.execute(
        """SELECT job_id, id, index, task, size, evaluation_version FROM trajectory_group
           WHERE id = %s AND state = ANY(%s) FOR UPDATE""",
        [group_id, _RUNNING],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    job_id, group = row[0], OpenGroup(*row[1:])
    slots = await slots_read(connection, group)
    num_verdicts = sum(slot.state is SessionState.CLOSED for slot in slots)
    if not all(slot.is_over for slot in slots):
        await connection.execute(
            "UPDATE trajectory_group SET num_verdicts = %s WHERE id = %s", [num_verdicts, group_id]
        )
        return None
    needed = num_verdicts_needed(group.size)
    reason, cause = f"{num_verdicts} of {group.size} sessions have a verdict", None
    if group.evaluation_version is not None:
        return await _measured(connection, job_id, group, spec, num_verdicts=num_verdicts, reason=reason)
    if num_verdicts < needed:
        reason, cause = f"{reason}; {needed} are needed", DropCause.VERDICTS
    elif (flat := await _flat_reward(connection, job_id, group_id, spec)) is not None:
        reason, cause = (
            f"every session has the reward {flat:g}; another group takes its place",
            DropCause.NO_CONTRAST,
        )
    target = GroupState.READY if cause is None else GroupState.DROPPED
    await group_move(connection, group_id, GroupState.OPEN, target, reason=reason, cause=cause)
    await connection.execute(_STATISTICS, {"group": group_id, "num": num_verdicts})
    if target is GroupState.READY:
        await scheduler_notify(connection, "group ready")
    return target


async def _measured(
    connection: Connection, job_id: UUID, group: OpenGroup, spec: JobSpec, *, num_verdicts: int, reason: str
) -> GroupState:
    """However many verdicts a held-out task has: those are what is measured."""
    assert group.evaluation_version is not None
    target = GroupState.EVALUATED
    await group_move(connection, group.group_id, GroupState.EVALUATING, target, reason=reason)
    await connection.execute(_STATISTICS, {"group": group.group_id, "num": num_verdicts})
    await evaluation_finish_if_whole(connection, job_id, group.evaluation_version, spec)
    return target


async def _flat_reward(connection: Connection, job_id: UUID, group_id: UUID, spec: JobSpec) -> float | None:
    """The reward that all sessions of a group share, if dynamic sampling replaces such groups and may still do so."""
    sampling = spec.algorithm.sampling
    if not sampling.dynamic:
        return None
    cursor = await connection.execute(
        """SELECT min(reward), max(reward),
                  (SELECT count(*) FROM trajectory_group WHERE job_id = %s AND state = 'dropped'
                   AND drop_cause = %s AND replaced_for IS NULL)
           FROM trajectory_session WHERE group_id = %s AND state = 'closed'""",
        [job_id, DropCause.NO_CONTRAST.value, group_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    lowest, highest, num_replaced = row
    is_replaced = lowest == highest and num_replaced < sampling.dynamic_limit * spec.rollout.groups_per_batch
    return float(lowest) if is_replaced else None


_STATISTICS = """
    UPDATE trajectory_group g
    SET num_verdicts = %(num)s, reward_mean = r.mean, reward_std = r.std, min_version = v.low, max_version = v.high,
        ready_at = CASE WHEN g.state = 'ready' THEN now() END
    FROM (SELECT avg(reward) AS mean, stddev_pop(reward) AS std FROM trajectory_session
          WHERE group_id = %(group)s AND state = 'closed') r,
         (SELECT min(n.min_version) AS low, max(n.max_version) AS high FROM trajectory_session s
          JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
          WHERE s.group_id = %(group)s AND s.state = 'closed') v
    WHERE g.id = %(group)s"""


async def group_move(
    connection: Connection,
    group_id: UUID,
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
) -> bool:
    """Compare-and-set of a group's state, with its event. False when it was elsewhere. `cause`: why it is dropped."""
    GROUP_MOVES.check(source, target)
    cursor = await connection.execute(
        """UPDATE trajectory_group SET state = %s, reason = %s, drop_cause = %s WHERE id = %s AND state = %s
           RETURNING project_id, job_id, index""",
        [target.value, reason, cause.value if cause else "", group_id, source.value],
    )
    row = await cursor.fetchone()
    if row is None:
        return False
    await group_event(
        connection,
        project_id=row[0],
        job_id=row[1],
        group_id=group_id,
        from_state=source.value,
        to_state=target.value,
        reason=reason,
        data={"index": row[2]},
    )
    return True
