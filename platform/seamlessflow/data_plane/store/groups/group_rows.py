"""Rows of rollout groups and their sessions: leased to agent runners, completed by outcomes.

States move as `core.lifecycle.groups` allows, each move by compare-and-set with an event row. A group whose lease has
expired or whose phase is dead is leased again: its unfinished sessions fail, and each slot may run until three of its
sessions have failed. Failures that are not the agent's (a judge, a machine, a drain) do not count. Once no slot can
run, the group trains if it has k ≥ min(G, max(2, G/2)) outcomes, and is dropped otherwise.
"""

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
from seamlessflow.data_plane.store.connection import Connection, named_rows, new_id
from seamlessflow.data_plane.store.jobs import job_lock_number, month_of
from seamlessflow.runtime.sql import statements

MAX_FAILURES = 3
SQL = statements(
    __name__, FailureKind, GroupState, PhaseState, SessionState, live=LIVE_PHASE_STATES,
    running=RUNNING_GROUP_STATES, uncharged=UNCHARGED,
)  # fmt: skip


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
    values = {"job": claims.job_id, "phase": claims.phase_id, "fence": claims.fence, "state": state.value}
    return [OpenGroup(**row._asdict()) for row in await named_rows(connection, SQL["leasable"], values)]


async def group_open_of_key(connection: Connection, job_id: UUID, external_key: str) -> OpenGroup | None:
    """Lock and return the newest open group that external agents opened under this key; None if there is none."""
    rows = await named_rows(connection, SQL["open_of_key"], {"job": job_id, "key": external_key})
    return OpenGroup(**rows[0]._asdict()) if rows else None


async def group_insert(
    connection: Connection, group: NewGroup, *, holder: PhaseClaims | None = None, lease_s: float = 0.0
) -> OpenGroup:
    """Insert a group, leased to a phase if it has a `holder`."""
    group_id = new_id()
    await connection.execute(
        SQL["insert"],
        {
            "id": group_id, "project": group.project_id, "job": group.job_id, "index": group.index,
            "evaluation_version": group.evaluation_version, "external_key": group.external_key,
            "task_index": group.task_index, "task": Jsonb(group.task), "size": group.size, "state": group.state.value,
            "phase": holder and holder.phase_id, "fence": holder and holder.fence, "lease_s": lease_s,
        },
    )  # fmt: skip
    return OpenGroup(group_id, group.index, group.task, group.size, group.evaluation_version)


async def groups_hold(
    connection: Connection, group_ids: list[UUID], claims: PhaseClaims, lease_s: float
) -> None:
    """Lease these groups to a phase, or renew their leases."""
    values = {"phase": claims.phase_id, "fence": claims.fence, "lease_s": lease_s, "groups": group_ids}
    await connection.execute(SQL["lease"], values)


async def groups_renew(connection: Connection, group_ids: list[UUID], lease_s: float) -> None:
    """Renew the leases of groups whose sessions sent requests. Locks rows in the same order as `groups_lock`."""
    await connection.execute(SQL["renew"], {"lease_s": lease_s, "groups": group_ids})


async def sessions_abandon(connection: Connection, group_id: UUID) -> list[UUID]:
    """Fail the open sessions of a group whose runner is gone; they count as requeued if its phase was drained."""
    SESSION_MOVES.check(SessionState.OPEN, SessionState.FAILED)
    return [row.id for row in await named_rows(connection, SQL["abandon"], {"group": group_id})]


async def sessions_unheld(
    connection: Connection, group_ids: Sequence[UUID], *, held: Sequence[UUID]
) -> list[UnheldSession]:
    """Return the open sessions of these groups that their runner does not have, in order of their slots."""
    values = {"groups": list(group_ids), "known": list(held)}
    return [UnheldSession(**row._asdict()) for row in await named_rows(connection, SQL["unknown"], values)]


async def sessions_recall(connection: Connection, session_ids: Sequence[UUID]) -> list[UUID]:
    """Requeue open sessions that their runner has given up without a report. Returns those that were still open."""
    SESSION_MOVES.check(SessionState.OPEN, SessionState.FAILED)
    rows = await named_rows(connection, SQL["recall"], {"sessions": list(session_ids)})
    return [row.id for row in rows]


async def slots_read(connection: Connection, groups: Sequence[OpenGroup]) -> dict[UUID, list[Slot]]:
    """Return all slots of each group, in order."""
    slots = {group.group_id: slots_new(group) for group in groups}
    for row in await named_rows(connection, SQL["slots"], {"groups": list(slots)}):
        state = SessionState(row.state)
        slots[row.group_id][row.slot] = Slot(row.slot, row.attempt, state, row.num_failures, row.is_masked)
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
        SQL["sessions_insert"],
        {
            "project": project_id, "job": job_id, "group": group.group_id, "month": month_of(now), "now": now,
            "epoch": epoch,
            "ids": [session.session_id for session in leased],
            "slots": [session.slot for session in leased],
            "attempts": [session.attempt for session in leased],
            "digests": [key_digest(session.api_key) for session in leased],
        },
    )  # fmt: skip
    return leased
