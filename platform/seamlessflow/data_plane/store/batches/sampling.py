"""Reads what sampling a batch cost: dropped groups, times and hand-overs, and how old running groups are."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.batching.failed_lengths import FailedSession
from seamlessflow.core.lifecycle.groups import DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.data_plane.store.turns.node_rows import RESUMED_FLAG
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, GroupState, SessionState)


@dataclass(frozen=True, slots=True)
class Waste:
    """Dropped groups that no batch has counted yet."""

    group_ids: list[UUID]
    metrics: dict[str, float]


async def waste_read(connection: Connection, job_id: UUID) -> Waste:
    rows = await named_rows(connection, SQL["waste"], {"job": job_id})
    flat = [row.reward_mean for row in rows if row.drop_cause == DropCause.NO_CONTRAST]
    return Waste(
        group_ids=[row.id for row in rows],
        metrics={
            "rollout/num_replaced_groups": float(len(flat)),
            "rollout/num_stale_groups": float(sum(row.drop_cause == DropCause.STALE for row in rows)),
            "rollout/num_wasted_tokens": float(sum(row.num_tokens for row in rows)),
            **({"rollout/replaced_reward_mean": sum(flat) / len(flat)} if flat else {}),
        },
    )


async def rollout_costs(connection: Connection, group_ids: Sequence[UUID]) -> dict[str, float]:
    """Read how long groups took from admission until they were ready, and how often their turns changed engines."""
    (row,) = await named_rows(connection, SQL["costs"], {"groups": list(group_ids)})
    costs = {
        "rollout/group_s_mean": row.group_s_mean,
        "rollout/group_s_max": row.group_s_max,
        "rollout/num_handovers": row.num_handovers,
        "rollout/num_continuations": row.num_continuations,
    }
    return {name: value for name, value in costs.items() if value is not None}


async def failed_sessions(
    connection: Connection, group_ids: Sequence[UUID], *, are_resumed: bool
) -> list[FailedSession]:
    """Read the failed attempts of these groups. `are_resumed`: the job resumes them as far as its agents ask the same.

    An attempt counts as resumed if the session with the slot's outcome has got at least as many answers as it had.
    """
    values = {"are_resumed": are_resumed, "flag": RESUMED_FLAG, "groups": list(group_ids)}
    return [FailedSession(**row._asdict()) for row in await named_rows(connection, SQL["failed"], values)]


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
    (row,) = await named_rows(connection, SQL["oldest"], {"job": job_id})
    oldest: int | None = row.min_version
    return oldest
