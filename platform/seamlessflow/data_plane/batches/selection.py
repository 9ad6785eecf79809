"""Chooses the ready groups of the next batch, and drops those that are too stale to train.

`groups_take` reads the ready groups under the job's lock, drops the stale ones and returns the groups of one batch.
`groups_select` decides which are which from facts alone. Invariant: no group is both trainable and stale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.algorithms.options import StalenessScope, StaleRule
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import DropCause, GroupState
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.batches.batch_rows import ReadyGroup, groups_ready, sessions_fresh_count
from seamlessflow.data_plane.store.batches.sampling import oldest_open_version
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import group_move, num_rewarded_needed


@dataclass(frozen=True, slots=True)
class StaleGroup:
    """A group that may no longer train, with the reason."""

    group_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """`trainable` groups may train at the requested version, oldest first; `stale` groups must be dropped."""

    trainable: Sequence[ReadyGroup]
    stale: Sequence[StaleGroup]


async def groups_take(
    connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec
) -> Sequence[ReadyGroup] | None:
    """Drop the stale groups and return the oldest groups of one batch. Call it under the job's lock.

    Returns None if too few groups are trainable, or if the job waits for groups that still run.
    """
    selection = await _selected(connection, job_id, policy_version, spec)
    for group in selection.stale:
        await group_move(
            connection,
            group.group_id,
            GroupState.READY,
            GroupState.DROPPED,
            reason=group.reason,
            cause=DropCause.STALE,
        )
        metrics.GROUPS_DROPPED.inc()
    num_groups = spec.rollout.groups_per_batch
    if len(selection.trainable) < num_groups or await _must_wait(connection, job_id, policy_version, spec):
        return None
    return selection.trainable[:num_groups]


async def _selected(connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec) -> Selection:
    oldest_allowed = spec.algorithm.staleness_bound.oldest_version(step_version=policy_version)
    ready = await groups_ready(connection, job_id)
    is_by_token = spec.algorithm.off_policy.staleness_scope is StalenessScope.TOKEN
    aged = [group.group_id for group in ready if is_aged(group, oldest_allowed, is_by_token=is_by_token)]
    num_fresh = await sessions_fresh_count(connection, aged, oldest_allowed=oldest_allowed) if aged else {}
    return groups_select(
        ready,
        num_fresh,
        policy_version=policy_version,
        oldest_allowed=oldest_allowed,
        num_needed=num_rewarded_needed(spec.rollout.group_size),
    )


async def _must_wait(connection: Connection, job_id: UUID, policy_version: int, spec: JobSpec) -> bool:
    """Return whether the job waits for a running group that the next version would put beyond the staleness bound."""
    if spec.algorithm.off_policy.stale_groups is not StaleRule.WAIT:
        return False
    oldest = await oldest_open_version(connection, job_id)
    bound = spec.algorithm.staleness_bound
    return oldest is not None and bound.is_beyond(oldest, step_version=policy_version + 1)


def is_aged(group: ReadyGroup, oldest_allowed: int, *, is_by_token: bool) -> bool:
    """Return whether the group has sessions beyond the bound; with `is_by_token`, whether all its tokens are."""
    version = group.max_version if is_by_token else group.min_version
    return version is not None and version < oldest_allowed


def groups_select(
    ready: Sequence[ReadyGroup],
    num_fresh: Mapping[UUID, int],
    *,
    policy_version: int,
    oldest_allowed: int,
    num_needed: int,
) -> Selection:
    """Divide ready groups. `num_fresh` counts an aged group's sessions within the bound; with too few it is stale."""
    trainable: list[ReadyGroup] = []
    stale: list[StaleGroup] = []
    for group in ready:
        num = num_fresh.get(group.group_id, num_needed)
        if group.min_version is None or num < num_needed:
            reason = _reason(group, num, oldest_allowed=oldest_allowed, num_needed=num_needed)
            stale.append(StaleGroup(group.group_id, reason))
        elif group.max_version is None or group.max_version <= policy_version:
            trainable.append(group)
    return Selection(trainable, stale)


def _reason(group: ReadyGroup, num_fresh: int, *, oldest_allowed: int, num_needed: int) -> str:
    if group.min_version is None:
        return "it has no sampled token of a known version"
    return (
        f"its oldest token was sampled by version {group.min_version}, but the oldest version that may train now is "
        f"{oldest_allowed} (sessions within the bound: {num_fresh}, needed: {num_needed})"
    )
