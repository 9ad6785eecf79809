"""Moves groups from state to state: by compare-and-set, as `core.lifecycle.groups` allows, each with an event row.

A move and its events are one statement, however many groups move. Invariant: a group that is in another state than
expected stays as it is and gets no event.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GROUP_MOVES, DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.events import AUTHOR
from seamlessflow.data_plane.store.values import sql_literal

_GROUP_READY = sql_literal(GroupState.READY)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)

# Gateways may write events and not read them, so the statements return the moves and not the events.
_EVENTS = """events AS (
        INSERT INTO common_event
            (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
        SELECT project_id, 'group', id, job_id, 'group.state', %(source)s::text, %(target)s::text, %(reason)s::text,
               %(author)s::text, jsonb_build_object('index', index), now()
        FROM moved ORDER BY index)"""


async def groups_move(
    connection: Connection,
    group_ids: Sequence[UUID],
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
) -> set[UUID]:
    """Move groups and write their events. Returns those that were in state `source`.

    `cause`: why they are dropped.
    """
    GROUP_MOVES.check(source, target)
    cursor = await connection.execute(
        f"""WITH moved AS (
                UPDATE trajectory_group
                SET state = %(target)s::text, reason = %(reason)s::text, drop_cause = %(cause)s::text,
                    finalized_at = coalesce(finalized_at, clock_timestamp())
                WHERE id = ANY(%(groups)s) AND state = %(source)s::text
                RETURNING id, project_id, job_id, index),
            {_EVENTS}
            SELECT id FROM moved""",
        {"groups": list(group_ids), **_values(source, target, reason, cause)},
    )
    return {row[0] for row in await cursor.fetchall()}


async def group_move(
    connection: Connection,
    group_id: UUID,
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
) -> bool:
    """Move one group. Returns False if it was in another state."""
    return bool(await groups_move(connection, [group_id], source, target, reason=reason, cause=cause))


async def group_finalize(
    connection: Connection,
    group_id: UUID,
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
    num_rewarded: int,
) -> int:
    """Move a locked group in state `source` on, and store the rewards and versions of its sessions.

    Returns how many other groups of its job are ready: they may train and are in no batch.
    """
    GROUP_MOVES.check(source, target)
    cursor = await connection.execute(
        f"""WITH moved AS (
                UPDATE trajectory_group g
                SET state = %(target)s::text, reason = %(reason)s::text, drop_cause = %(cause)s::text,
                    finalized_at = coalesce(finalized_at, clock_timestamp()), num_rewarded = %(num)s,
                    reward_mean = r.mean, reward_std = r.std, min_version = v.low, max_version = v.high,
                    ready_at = CASE WHEN %(target)s::text = {_GROUP_READY} THEN now() END
                FROM (SELECT avg(reward) AS mean, stddev_pop(reward) AS std FROM trajectory_session
                      WHERE group_id = %(group)s AND state = {_SESSION_CLOSED}) r,
                     (SELECT min(n.min_version) AS low, max(n.max_version) AS high FROM trajectory_session s
                      JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
                      WHERE s.group_id = %(group)s AND s.state = {_SESSION_CLOSED}) v
                WHERE g.id = %(group)s AND g.state = %(source)s::text
                RETURNING g.id, g.project_id, g.job_id, g.index),
            {_EVENTS}
            SELECT (SELECT count(*) FROM trajectory_group g
                    WHERE g.job_id = moved.job_id AND g.state = {_GROUP_READY})
            FROM moved""",
        {"group": group_id, "num": num_rewarded, **_values(source, target, reason, cause)},
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def _values(source: GroupState, target: GroupState, reason: str, cause: DropCause | None) -> dict[str, Any]:
    return {
        "source": source.value,
        "target": target.value,
        "reason": reason,
        "cause": cause.value if cause else "",
        "author": AUTHOR,
    }
