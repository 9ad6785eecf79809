"""Reads what sampling a batch cost: dropped groups, times and hand-overs, and how old running groups are."""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.batching.failed_lengths import FailedSession
from seamlessflow.core.lifecycle.groups import DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import RESUMED_FLAG
from seamlessflow.data_plane.store.values import sql_literal

_GROUP_DROPPED = sql_literal(GroupState.DROPPED)
_GROUP_OPEN = sql_literal(GroupState.OPEN)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)
_SESSION_FAILED = sql_literal(SessionState.FAILED)
_SESSION_OPEN = sql_literal(SessionState.OPEN)


@dataclass(frozen=True, slots=True)
class Waste:
    """Dropped groups that no batch has counted yet."""

    group_ids: list[UUID]
    metrics: dict[str, float]


async def waste_read(connection: Connection, job_id: UUID) -> Waste:
    cursor = await connection.execute(
        f"""SELECT g.id, g.drop_cause, coalesce(sum(s.num_sampled_tokens), 0)::bigint, g.reward_mean
           FROM trajectory_group g LEFT JOIN trajectory_session s ON s.group_id = g.id
           WHERE g.job_id = %s AND g.state = {_GROUP_DROPPED} AND g.replaced_for IS NULL GROUP BY g.id""",
        [job_id],
    )
    rows = await cursor.fetchall()
    flat = [row for row in rows if row[1] == DropCause.NO_CONTRAST]
    return Waste(
        group_ids=[row[0] for row in rows],
        metrics={
            "rollout/num_replaced_groups": float(len(flat)),
            "rollout/num_stale_groups": float(sum(row[1] == DropCause.STALE for row in rows)),
            "rollout/num_wasted_tokens": float(sum(row[2] for row in rows)),
            **({"rollout/replaced_reward_mean": sum(row[3] for row in flat) / len(flat)} if flat else {}),
        },
    )


async def rollout_costs(connection: Connection, group_ids: Sequence[UUID]) -> dict[str, float]:
    """Read how long groups took from admission until they were ready, and how often their turns changed engines."""
    cursor = await connection.execute(
        f"""SELECT avg(took_s)::float, max(took_s)::float, sum(handovers)::float, sum(continuations)::float FROM (
               SELECT extract(epoch FROM g.ready_at - g.created_at) AS took_s, sum(n.num_handovers) AS handovers,
                      sum(n.num_continuations) AS continuations
               FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id AND s.state = {_SESSION_CLOSED}
               JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
               WHERE g.id = ANY(%s) GROUP BY g.id) took""",
        [list(group_ids)],
    )
    row = await cursor.fetchone()
    assert row is not None
    names = (
        "rollout/group_s_mean",
        "rollout/group_s_max",
        "rollout/num_handovers",
        "rollout/num_continuations",
    )
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}


async def failed_sessions(
    connection: Connection, group_ids: Sequence[UUID], *, are_resumed: bool
) -> list[FailedSession]:
    """Read the failed attempts of these groups. `are_resumed`: the job resumes them as far as its agents ask the same.

    An attempt counts as resumed if the session with the slot's outcome has got at least as many answers as it had.
    """
    cursor = await connection.execute(
        f"""SELECT f.failure, f.num_sampled_tokens, %s AND f.num_turns <= (
               SELECT count(DISTINCT n.turn_id) FROM trajectory_session c
               JOIN trajectory_node n ON n.month = c.month AND n.session_id = c.id AND n.flags ? %s
               WHERE c.group_id = f.group_id AND c.slot = f.slot AND c.state = {_SESSION_CLOSED})
           FROM trajectory_session f WHERE f.group_id = ANY(%s) AND f.state = {_SESSION_FAILED}""",
        [are_resumed, RESUMED_FLAG, list(group_ids)],
    )
    return [FailedSession(*row) for row in await cursor.fetchall()]


async def seconds_since_last_batch(connection: Connection, job_id: UUID) -> float | None:
    """Return the seconds since the job's last batch; None before the first."""
    cursor = await connection.execute(
        "SELECT extract(epoch FROM now() - max(created_at))::float FROM trajectory_batch WHERE job_id = %s",
        [job_id],
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def oldest_open_version(connection: Connection, job_id: UUID) -> int | None:
    """Return the oldest version that sampled a token in the open groups; None if they have no such token."""
    cursor = await connection.execute(
        f"""SELECT min(n.min_version) FROM trajectory_session s
           JOIN trajectory_group g ON g.id = s.group_id AND g.state = {_GROUP_OPEN}
           JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
           WHERE g.job_id = %s AND s.state IN ({_SESSION_OPEN}, {_SESSION_CLOSED})""",
        [job_id],
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]
