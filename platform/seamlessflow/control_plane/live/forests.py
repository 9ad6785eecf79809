"""The topic `group:<uuid>`: the snapshot of a forest without its nodes, and all that was recorded since the last tick.

Takes the groups that clients watch; returns rows of the group, of its sessions (each with its number of nodes) and
of new nodes. Gateways publish growing answers on the same topic (`growing`). Invariant: a client that has fewer nodes
of a session than its row says asks for them over REST, so nothing stays missing.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.control_plane.live.rows import group_row
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.control_plane.trajectories.selectors.forests import (
    MAX_NEW_NODES,
    ForestSession,
    forest_nodes_new,
    forest_sessions,
)
from seamlessflow.core.protocol.live_events import group_topic
from seamlessflow.core.protocol.live_rows import GroupData, GroupInfoRow, NodeRow, SessionRow
from seamlessflow.core.types.ids import IdKind, show_id

MAX_WATCHED = 64  # groups; if more are watched, only the first are fed, and the other pages read the database


@dataclass(frozen=True, slots=True)
class _PublishedGroup:
    group: GroupInfoRow
    sessions: dict[str, SessionRow]
    num_nodes: dict[UUID, int]


@dataclass(slots=True)
class PublishedForests:
    """What has been published. It is replaced once the broker has taken the next deltas."""

    groups: dict[UUID, _PublishedGroup] = field(default_factory=dict)


def group_snapshot(group_id: UUID) -> GroupData:
    group = RolloutGroup.objects.select_related("job").get(id=group_id)
    sessions = forest_sessions([group])[group.id]
    return {"group": _group(group), "sessions": [session.row for session in sessions]}


def forests_compare(
    watched: Mapping[UUID, int], published: PublishedForests, topics: dict[str, dict[str, Any]]
) -> PublishedForests:
    """Add what changed to `topics`; return what listeners will know once it is published."""
    if not watched:
        return PublishedForests()
    ids = sorted(watched)[:MAX_WATCHED]
    groups = list(RolloutGroup.objects.filter(id__in=ids).select_related("job"))
    sessions = forest_sessions(groups)
    heads = [
        (session, known.num_nodes.get(session.session_id, 0))
        for group in groups
        if (known := published.groups.get(group.id)) is not None
        for session in sessions[group.id]
        if session.num_nodes > known.num_nodes.get(session.session_id, 0)
    ]
    nodes: dict[str, list[NodeRow]] = defaultdict(list)
    if heads:
        fresh = forest_nodes_new(heads)
        # If there are too many, none is published: the numbers in the rows of sessions make clients ask for them.
        for row in fresh if len(fresh) < MAX_NEW_NODES else ():
            nodes[row["session"]].append(row)
    return PublishedForests(
        {
            group.id: _compare(group, sessions[group.id], published.groups.get(group.id), nodes, topics)
            for group in groups
        }
    )


def _compare(
    group: RolloutGroup,
    sessions: list[ForestSession],
    known: _PublishedGroup | None,
    nodes: Mapping[str, list[NodeRow]],
    topics: dict[str, dict[str, Any]],
) -> _PublishedGroup:
    now = _PublishedGroup(
        group=_group(group),
        sessions={session.row["id"]: session.row for session in sessions},
        num_nodes={session.session_id: session.num_nodes for session in sessions},
    )
    if known is None or known.group != now.group:
        topics[group_topic(group.id)]["group"] = now.group
    changed = [row for name, row in now.sessions.items() if known is None or known.sessions.get(name) != row]
    if changed:
        topics[group_topic(group.id)]["sessions"] = changed
    added = [row for session in sessions for row in nodes.get(session.row["id"], ())]
    if added:
        topics[group_topic(group.id)]["nodes"] = added
    return now


def _group(group: RolloutGroup) -> GroupInfoRow:
    return {
        **group_row(group),
        "job": show_id(IdKind.JOB, group.job_id),
        "job_name": group.job.name,
        "task_index": group.task_index,
        "evaluation": group.evaluation_version,
        "task": group.task,
    }
