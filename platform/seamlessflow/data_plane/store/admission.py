"""How many new groups may begin: counted from durable state, so that no restart inflates it.

Two bounds: what the staleness rule lets wait (open and ready groups ≤ groups_per_batch × (max_staleness + 1)), and
what the remaining updates need, with one batch to spare.
"""

from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.data_plane.store.connection import Connection


@dataclass(frozen=True, slots=True)
class GroupCounts:
    num_waiting: int  # open and ready
    next_index: int
    last_batch: int


async def group_counts(connection: Connection, job_id: UUID) -> GroupCounts:
    cursor = await connection.execute(
        """SELECT (SELECT count(*) FROM trajectory_group WHERE job_id = %(job)s AND state = ANY(%(waiting)s)),
                  (SELECT coalesce(max(index), -1) + 1 FROM trajectory_group WHERE job_id = %(job)s),
                  (SELECT coalesce(max(number), 0) FROM trajectory_batch WHERE job_id = %(job)s)""",
        {"job": job_id, "waiting": [GroupState.OPEN.value, GroupState.READY.value]},
    )
    row = await cursor.fetchone()
    assert row is not None
    return GroupCounts(*row)


def num_admissible(spec: JobSpec, counts: GroupCounts) -> int:
    """New groups that may begin now."""
    per_batch = spec.rollout.groups_per_batch
    remaining = spec.train.num_updates - counts.last_batch
    if remaining <= 0:
        return 0
    staleness_room = per_batch * (spec.algorithm.max_staleness + 1) - counts.num_waiting
    needed = per_batch * (remaining + 1) - counts.num_waiting
    return max(0, min(staleness_room, needed))
