"""Group finalization: a group with outcomes is moved on once none of its slots can run any more.

`groups_finalize` takes groups that `store/groups/finalization` has locked and returns their new states: ready, dropped
with a cause, or evaluated. Its number of statements does not depend on the number of groups; only a group that is moved
on needs more. After the commit, `GroupNews` counts these groups and wakes the long polls that wait for them.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

import numpy as np

from seamlessflow.core.algorithms.advantage import is_flat
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import DropCause, GroupState, SessionState
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.notifier import JobNotifier
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.events import scheduler_notify
from seamlessflow.data_plane.store.groups.evaluations import evaluation_finish_if_whole
from seamlessflow.data_plane.store.groups.finalization import (
    LockedGroup,
    contrast_read,
    num_rewarded_note,
)
from seamlessflow.data_plane.store.groups.group_rows import (
    OpenGroup,
    Slot,
    num_rewarded_needed,
    slots_read,
)
from seamlessflow.data_plane.store.groups.moves import group_finalize

_COUNTERS = {
    GroupState.READY: metrics.GROUPS_READY,
    GroupState.DROPPED: metrics.GROUPS_DROPPED,
    GroupState.EVALUATED: metrics.GROUPS_EVALUATED,
}


async def groups_finalize(
    connection: Connection, locked: Sequence[LockedGroup], spec: JobSpec, *, are_given_up: bool = False
) -> dict[UUID, GroupState]:
    """Move on the groups with no slot that can still run. Call it in the transaction that ended their sessions.

    With `are_given_up` no client will open their free slots, so a group is moved on unless one of its sessions is open.
    Returns the new states of the groups that were moved on; the others stay as they are.
    """
    if not locked:
        return {}
    slots = await slots_read(connection, [each.group for each in locked])
    moved: dict[UUID, GroupState] = {}
    num_rewarded = {}
    for each in locked:
        group_id = each.group.group_id
        num = sum(slot.state is SessionState.CLOSED for slot in slots[group_id])
        if is_at_its_end(slots[group_id], is_given_up=are_given_up):
            moved[group_id] = await _finalized(connection, each, spec, num_rewarded=num)
        else:
            num_rewarded[group_id] = num
    await num_rewarded_note(connection, num_rewarded)
    return moved


def is_at_its_end(slots: Sequence[Slot], *, is_given_up: bool) -> bool:
    """Return whether no slot can run any more, or, for a group that was given up, whether no session is open."""
    if is_given_up:
        return all(slot.state is not SessionState.OPEN for slot in slots)
    return all(slot.is_over for slot in slots)


class GroupNews:
    def __init__(self, *, openings: JobNotifier, ready: JobNotifier) -> None:
        """`ready` announces that a group became ready, `openings` that more groups may begin."""
        self._openings = openings
        self._ready = ready

    def announce(self, job_id: UUID, finalized: Collection[GroupState]) -> None:
        """Announce the new states of the job's groups. Call it after their transaction is committed."""
        groups_count(finalized)
        if GroupState.READY in finalized:
            self._ready.notify(job_id)
        if set(finalized) - {GroupState.READY}:  # a ready group counts against the bounds until it is trained
            self._openings.notify(job_id)


def groups_count(finalized: Collection[GroupState]) -> None:
    """Count groups that have just reached these states in the metrics."""
    for state in finalized:
        _COUNTERS[state].inc()


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
            f"every session has the reward {flat:g}; another group replaces it",
            DropCause.NO_CONTRAST,
        )
    target = GroupState.READY if cause is None else GroupState.DROPPED
    num_others_ready = await group_finalize(
        connection,
        group.group_id,
        GroupState.OPEN,
        target,
        reason=reason,
        cause=cause,
        num_rewarded=num_rewarded,
    )
    # Of whole batches, and one group early, because two may become ready at the same time.
    if target is GroupState.READY and (num_others_ready + 2) % spec.rollout.groups_per_batch <= 1:
        await scheduler_notify(connection, "group ready")
    return target


async def _measured(
    connection: Connection, job_id: UUID, group: OpenGroup, spec: JobSpec, *, num_rewarded: int, reason: str
) -> GroupState:
    """Finalize a group of an evaluation: a held-out task is measured by the outcomes it has, however few."""
    assert group.evaluation_version is not None
    target = GroupState.EVALUATED
    await group_finalize(
        connection, group.group_id, GroupState.EVALUATING, target, reason=reason, num_rewarded=num_rewarded
    )
    await evaluation_finish_if_whole(connection, job_id, group.evaluation_version, spec)
    return target


async def _flat_reward(connection: Connection, job_id: UUID, group_id: UUID, spec: JobSpec) -> float | None:
    """Return the reward of all sessions of a group; None if they differ or dynamic sampling keeps the group."""
    sampling = spec.algorithm.sampling
    if not sampling.dynamic:
        return None
    contrast = await contrast_read(connection, job_id, group_id)
    max_replaced = sampling.dynamic_limit * spec.rollout.groups_per_batch
    is_replaced = (
        is_flat(np.array([contrast.lowest, contrast.highest])) and contrast.num_replaced < max_replaced
    )
    return contrast.lowest if is_replaced else None
