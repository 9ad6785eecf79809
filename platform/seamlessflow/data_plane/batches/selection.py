"""Decides which ready groups may train next and which are too stale.

Takes groups and counts, and returns a `Selection`; it changes nothing. Invariant: no group is both trainable and stale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.batches.batch_rows import ReadyGroup


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
