"""Chooses the ready groups of the next batch and finds the stale groups, without changing anything.

It takes the ready groups, the versions that sampled them and the oldest version that may still train. It returns the
groups of the batch and, apart from them, the groups to drop with the reason for each. Invariant: a group is in at most
one of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.batches.batch_rows import ReadyGroup


@dataclass(frozen=True, slots=True)
class StaleGroup:
    """A group that may no longer train, and why."""

    group_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """`trainable` groups may train at the requested version, oldest first; `stale` groups must be dropped."""

    trainable: Sequence[ReadyGroup]
    stale: Sequence[StaleGroup]


def is_aged(group: ReadyGroup, oldest_allowed: int, *, is_by_token: bool) -> bool:
    """Return whether its sessions may be beyond the bound; if the bound is by token, only if all tokens are."""
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
    """Select groups. `num_fresh` counts an aged group's sessions within the bound; with too few, it is stale."""
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
        return "it holds no sampled token of a known version"
    return (
        f"sampled by version {group.min_version}; the oldest that may train now is {oldest_allowed}, "
        f"and {num_fresh} sessions keep to it, fewer than {num_needed}"
    )
