"""Rows of rollout groups and their sessions: leased to agent runners, completed by outcomes.

States move as `core.lifecycle.groups` allows, each move by compare-and-set with an event row. A group whose lease has
expired or whose phase is dead is leased again: its unfinished sessions fail, and each slot may run until three of its
sessions have failed. Failures that are not the agent's (a judge, a machine, a drain) do not count. Once no slot can
run, the group trains if it has k ≥ min(G, max(2, G/2)) outcomes, and is dropped otherwise.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.environment.failures import UNCHARGED, FailureKind
from seamlessflow.core.lifecycle.groups import (
    RUNNING_GROUP_STATES,
    SESSION_MOVES,
    GroupState,
    SessionState,
)
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import LeasedSession
from seamlessflow.data_plane.store.api_keys import key_digest, session_api_key
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.jobs import job_lock_number, month_of
from seamlessflow.data_plane.store.values import sql_literal

_PHASE_ENDED = sql_literal(PhaseState.ENDED)
_SESSION_FAILED = sql_literal(SessionState.FAILED)
_SESSION_OPEN = sql_literal(SessionState.OPEN)
_MACHINE = sql_literal(FailureKind.MACHINE)
_UNCHARGED = sorted(kind.value for kind in UNCHARGED)

MAX_FAILURES = 3
_LIVE = sorted(state.value for state in LIVE_PHASE_STATES)
_RUNNING = sorted(state.value for state in RUNNING_GROUP_STATES)
_LEASABLE = f"""
    SELECT g.id, g.index, g.task, g.size, g.evaluation_version,
           g.lease_phase_id IS DISTINCT FROM %(phase)s OR g.lease_fence IS DISTINCT FROM %(fence)s,
           (SELECT count(*) FROM trajectory_session s WHERE s.group_id = g.id AND s.state <> {_SESSION_FAILED}) < g.size
    FROM trajectory_group g
    WHERE g.job_id = %(job)s AND g.state = %(state)s AND g.external_key = ''
      AND ((g.lease_phase_id = %(phase)s AND g.lease_fence = %(fence)s) OR g.lease_expires_at IS NULL
           OR g.lease_expires_at < now()
           OR NOT EXISTS (SELECT 1 FROM scheduling_phase p WHERE p.id = g.lease_phase_id
                          AND p.fence = g.lease_fence AND p.state = ANY(%(live)s)))
    ORDER BY g.index FOR UPDATE OF g SKIP LOCKED"""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """A running group. `is_abandoned`: its runner is gone. It trains unless it has an `evaluation_version`.

    has_free_slots: a slot has neither an open session nor an outcome, so it may run, unless it failed too often.
    """

    group_id: UUID
    index: int
    task: dict[str, Any]
    size: int
    evaluation_version: int | None = None
    is_abandoned: bool = False
    has_free_slots: bool = True


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
    """The newest attempt of one slot; the state is None if the slot never ran.

    Failures that are not the agent's do not count. `is_masked`: the task's time was up, and that is no outcome.
    """

    slot: int
    attempt: int
    state: SessionState | None
    num_failures: int = 0
    is_masked: bool = False

    @property
    def may_run(self) -> bool:
        return self.state is None or (self.state is SessionState.FAILED and not self._is_spent)

    @property
    def is_over(self) -> bool:
        return self.state is SessionState.CLOSED or (self.state is SessionState.FAILED and self._is_spent)

    @property
    def _is_spent(self) -> bool:
        return self.is_masked or self.num_failures >= MAX_FAILURES


@dataclass(frozen=True, slots=True)
class UnheldSession:
    """An open session that its runner does not have."""

    session_id: UUID
    group_id: UUID
    slot: int
    attempt: int
    key_digest: bytes
    num_turns: int
    age_s: float


def num_rewarded_needed(size: int) -> int:
    """Return how many outcomes a group needs to train once no slot can run any more."""
    return min(size, max(2, math.ceil(size / 2)))


async def job_lock(connection: Connection, job_id: UUID) -> None:
    """Lock the job until the transaction ends, so that admission and batch assembly of one job are serialised."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [job_lock_number(job_id)])


async def groups_leasable(
    connection: Connection, claims: PhaseClaims, state: GroupState = GroupState.OPEN
) -> list[OpenGroup]:
    """Lock and return the running groups that this phase holds, or that no live phase holds, oldest first."""
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


async def group_open_of_key(connection: Connection, job_id: UUID, external_key: str) -> OpenGroup | None:
    """Lock and return the newest open group that external agents opened under this key; None if there is none."""
    cursor = await connection.execute(
        """SELECT id, index, task, size FROM trajectory_group
           WHERE job_id = %s AND state = %s AND external_key = %s ORDER BY index DESC LIMIT 1 FOR UPDATE""",
        [job_id, GroupState.OPEN.value, external_key],
    )
    row = await cursor.fetchone()
    return None if row is None else OpenGroup(*row)


async def group_insert(
    connection: Connection, group: NewGroup, *, holder: PhaseClaims | None = None, lease_s: float = 0.0
) -> OpenGroup:
    """Insert a group, leased to a phase if it has a `holder`."""
    group_id = new_id()
    await connection.execute(
        """INSERT INTO trajectory_group (id, project_id, job_id, index, evaluation_version, external_key, task_index,
               task, size, state, reason, num_rewarded, created_at, lease_phase_id, lease_fence, lease_expires_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', 0, now(), %s::uuid, %s::bigint,
                   CASE WHEN %s::bigint IS NOT NULL THEN now() + make_interval(secs => %s) END)""",
        [
            group_id, group.project_id, group.job_id, group.index, group.evaluation_version, group.external_key,
            group.task_index, Jsonb(group.task), group.size, group.state.value,
            holder and holder.phase_id, holder and holder.fence, holder and holder.fence, lease_s,
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
    """Renew the leases of groups whose sessions sent requests. Locks rows in the same order as `groups_lock`."""
    await connection.execute(
        """UPDATE trajectory_group SET lease_expires_at = now() + make_interval(secs => %s)
           WHERE id IN (SELECT id FROM trajectory_group WHERE id = ANY(%s) AND state = ANY(%s)
                        AND lease_phase_id IS NOT NULL ORDER BY id FOR UPDATE)""",
        [lease_s, group_ids, _RUNNING],
    )


async def sessions_abandon(connection: Connection, group_id: UUID) -> list[UUID]:
    """Fail the open sessions of a group whose runner is gone; they count as requeued if its phase was drained."""
    SESSION_MOVES.check(SessionState.OPEN, SessionState.FAILED)
    cursor = await connection.execute(
        f"""UPDATE trajectory_session SET state = {_SESSION_FAILED}, reason = 'its runner is gone',
                  failure = {_MACHINE}, closed_at = now(),
                  is_requeued = EXISTS (SELECT 1 FROM trajectory_group g JOIN scheduling_phase p
                                           ON p.id = g.lease_phase_id AND p.fence = g.lease_fence
                                           WHERE g.id = %(group)s AND p.state = {_PHASE_ENDED})
           WHERE group_id = %(group)s AND state = {_SESSION_OPEN} RETURNING id""",
        {"group": group_id},
    )
    return [row[0] for row in await cursor.fetchall()]


async def sessions_unheld(
    connection: Connection, group_ids: Sequence[UUID], *, held: Sequence[UUID]
) -> list[UnheldSession]:
    """Return the open sessions of these groups that their runner does not have, in order of their slots."""
    cursor = await connection.execute(
        f"""SELECT id, group_id, slot, attempt, key_digest, num_turns, extract(epoch FROM now() - opened_at)::float8
           FROM trajectory_session
           WHERE group_id = ANY(%s) AND state = {_SESSION_OPEN} AND NOT id = ANY(%s) ORDER BY slot""",
        [list(group_ids), list(held)],
    )
    return [
        UnheldSession(session, group, slot, attempt, bytes(digest), num_turns, age_s)
        for session, group, slot, attempt, digest, num_turns, age_s in await cursor.fetchall()
    ]


async def sessions_recall(connection: Connection, session_ids: Sequence[UUID]) -> list[UUID]:
    """Requeue open sessions that their runner has given up without a report. Returns those that were still open."""
    SESSION_MOVES.check(SessionState.OPEN, SessionState.FAILED)
    cursor = await connection.execute(
        f"""UPDATE trajectory_session SET state = {_SESSION_FAILED}, reason = 'its runner gave it up',
                  failure = {_MACHINE}, closed_at = now(), is_requeued = true
           WHERE id = ANY(%s) AND state = {_SESSION_OPEN} RETURNING id""",
        [list(session_ids)],
    )
    return [row[0] for row in await cursor.fetchall()]


async def slots_read(connection: Connection, groups: Sequence[OpenGroup]) -> dict[UUID, list[Slot]]:
    """Return all slots of each group, in order."""
    cursor = await connection.execute(
        f"""SELECT group_id, slot, max(attempt), (array_agg(state ORDER BY attempt DESC))[1],
                  count(*) FILTER (WHERE state = {_SESSION_FAILED} AND NOT is_requeued AND failure <> ALL(%s)),
                  bool_or(state = {_SESSION_FAILED} AND is_timeout)
           FROM trajectory_session WHERE group_id = ANY(%s) GROUP BY group_id, slot""",
        [_UNCHARGED, [group.group_id for group in groups]],
    )
    slots = {group.group_id: slots_new(group) for group in groups}
    for group_id, slot, attempt, state, num_failures, is_masked in await cursor.fetchall():
        slots[group_id][slot] = Slot(slot, attempt, SessionState(state), num_failures, is_masked)
    return slots


def slots_new(group: OpenGroup) -> list[Slot]:
    """Return the slots of a group in which no session has begun."""
    return [Slot(slot, 0, None) for slot in range(group.size)]


async def sessions_insert(
    connection: Connection,
    group: OpenGroup,
    slots: Sequence[Slot],
    *,
    project_id: UUID,
    job_id: UUID,
    now: datetime,
    epoch: int,
    make_key: Callable[[UUID], str] | None = None,
    base_url: str = "",
) -> list[LeasedSession]:
    """Open the next attempt of each slot, in one round trip, for the gateway with this `epoch`.

    `make_key` makes a session's key; default: random. `base_url`: the address of their gateway that the sessions get.
    """
    leased = []
    for slot in slots:
        session_id = new_id()
        key = (make_key or session_api_key)(session_id)
        leased.append(
            LeasedSession(
                session_id=session_id,
                slot=slot.slot,
                attempt=slot.attempt + 1,
                api_key=key,
                base_url=base_url,
            )
        )
    await connection.execute(
        f"""INSERT INTO trajectory_session (id, project_id, job_id, group_id, month, slot, attempt, state, reason,
               key_digest, is_timeout, is_requeued, failure, is_late, metrics, num_turns, num_sampled_tokens,
               opened_at, gateway_epoch)
           SELECT new.id, %s, %s, %s, %s, new.slot, new.attempt, {_SESSION_OPEN}, '', new.digest, false, false, '',
                  false, '{{}}', 0, 0, %s, %s
           FROM unnest(%s::uuid[], %s::int[], %s::int[], %s::bytea[]) AS new (id, slot, attempt, digest)""",
        [
            project_id, job_id, group.group_id, month_of(now), now, epoch,
            [session.session_id for session in leased],
            [session.slot for session in leased],
            [session.attempt for session in leased],
            [key_digest(session.api_key) for session in leased],
        ],
    )  # fmt: skip
    return leased
