"""Groups that got outcomes: locked together, moved on when no slot of theirs can run any more.

Any number of groups takes the same few statements; only one that is moved on takes more. Invariant: groups are locked
in the order of their ids, so two bursts of outcomes wait for one another but never cross.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import RUNNING_GROUP_STATES, DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.evaluations import evaluation_finish_if_whole
from seamlessflow.data_plane.store.events import scheduler_notify
from seamlessflow.data_plane.store.groups import (
    OpenGroup,
    group_move,
    num_rewarded_needed,
    slots_read,
)

_RUNNING = sorted(state.value for state in RUNNING_GROUP_STATES)
_STATISTICS = """
    UPDATE trajectory_group g
    SET num_rewarded = %(num)s, reward_mean = r.mean, reward_std = r.std, min_version = v.low, max_version = v.high,
        ready_at = CASE WHEN g.state = 'ready' THEN now() END
    FROM (SELECT avg(reward) AS mean, stddev_pop(reward) AS std FROM trajectory_session
          WHERE group_id = %(group)s AND state = 'closed') r,
         (SELECT min(n.min_version) AS low, max(n.max_version) AS high FROM trajectory_session s
          JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
          WHERE s.group_id = %(group)s AND s.state = 'closed') v
    WHERE g.id = %(group)s"""


@dataclass(frozen=True, slots=True)
class LockedGroup:
    """A running group that nobody else finalizes until the transaction ends."""

    job_id: UUID
    group: OpenGroup


async def groups_lock(connection: Connection, group_ids: Sequence[UUID]) -> list[LockedGroup]:
    """Those of the groups that still run, locked."""
    cursor = await connection.execute(
        """SELECT job_id, id, index, task, size, evaluation_version FROM trajectory_group
           WHERE id = ANY(%s) AND state = ANY(%s) ORDER BY id FOR UPDATE""",
        [list(group_ids), _RUNNING],
    )
    return [LockedGroup(row[0], OpenGroup(*row[1:])) for row in await cursor.fetchall()]


async def groups_finalize(
    connection: Connection, locked: Sequence[LockedGroup], spec: JobSpec, *, are_given_up: bool = False
) -> dict[UUID, GroupState]:
    """Move those on of which no slot can run any more; call with their sessions' changes in this transaction.

    `are_given_up`: nobody will open their free slots, so they are moved on unless a session of theirs is open.
    Returns the new states of these; the others stay open.
    """
    if not locked:
        return {}
    slots = await slots_read(connection, [each.group for each in locked])
    moved: dict[UUID, GroupState] = {}
    num_rewarded = {}
    for each in locked:
        group_id = each.group.group_id
        num = sum(slot.state is SessionState.CLOSED for slot in slots[group_id])
        if are_given_up:
            is_finalized = all(slot.state is not SessionState.OPEN for slot in slots[group_id])
        else:
            is_finalized = all(slot.is_over for slot in slots[group_id])
        if is_finalized:
            moved[group_id] = await _finalized(connection, each, spec, num_rewarded=num)
        else:
            num_rewarded[group_id] = num
    if num_rewarded:
        await connection.execute(
            """UPDATE trajectory_group g SET num_rewarded = now.num
               FROM unnest(%s::uuid[], %s::int[]) AS now (id, num)
               WHERE g.id = now.id AND g.num_rewarded <> now.num""",
            [list(num_rewarded), list(num_rewarded.values())],
        )
    return moved


async def _finalized(
    connection: Connection, locked: LockedGroup, spec: JobSpec, *, num_rewarded: int
) -> GroupState:
    job_id, group = locked.job_id, locked.group
    needed = num_rewarded_needed(group.size)
    reason, cause = f"{num_rewarded} of {group.size} sessions have an outcome", None
    if group.evaluation_version is not None:
        return await _measured(connection, job_id, group, spec, num_rewarded=num_rewarded, reason=reason)
    if num_rewarded < needed:
        reason, cause = f"{reason}; {needed} are needed", DropCause.TOO_FEW_REWARDED
    elif (flat := await _flat_reward(connection, job_id, group.group_id, spec)) is not None:
        reason, cause = (
            f"every session has the reward {flat:g}; another group takes its place",
            DropCause.NO_CONTRAST,
        )
    target = GroupState.READY if cause is None else GroupState.DROPPED
    await group_move(connection, group.group_id, GroupState.OPEN, target, reason=reason, cause=cause)
    await connection.execute(_STATISTICS, {"group": group.group_id, "num": num_rewarded})
    if target is GroupState.READY:
        await _ready_tell(connection, job_id, spec)
    return target


async def _ready_tell(connection: Connection, job_id: UUID, spec: JobSpec) -> None:
    """Notify the scheduler of whole batches; one group before as well, as two may become ready side by side."""
    cursor = await connection.execute(
        "SELECT count(*) FROM trajectory_group WHERE job_id = %s AND state = %s",
        [job_id, GroupState.READY.value],
    )
    row = await cursor.fetchone()
    assert row is not None
    if (row[0] + 1) % spec.rollout.groups_per_batch <= 1:
        await scheduler_notify(connection, "group ready")


async def _measured(
    connection: Connection, job_id: UUID, group: OpenGroup, spec: JobSpec, *, num_rewarded: int, reason: str
) -> GroupState:
    """However many outcomes a held-out task has: those are what is measured."""
    assert group.evaluation_version is not None
    target = GroupState.EVALUATED
    await group_move(connection, group.group_id, GroupState.EVALUATING, target, reason=reason)
    await connection.execute(_STATISTICS, {"group": group.group_id, "num": num_rewarded})
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
