"""How many new groups may begin: counted from durable state, so that no restart inflates it.

Two bounds: what the staleness rule lets wait (groups that are open, ready or in a batch that engines do not serve yet
≤ groups_per_batch × (max_staleness + 1)), and what the remaining updates need, with one batch to spare. An engine that
is too far behind to sample for training gets no turns and delays nobody.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.jobs import IS_TOO_OLD


@dataclass(frozen=True, slots=True)
class GroupCounts:
    num_waiting: int  # open and ready
    num_in_training: int  # in batches that some engine at work does not serve yet
    next_index: int
    last_batch: int


async def group_counts(connection: Connection, job_id: UUID) -> GroupCounts:
    cursor = await connection.execute(
        f"""SELECT (SELECT count(*) FROM trajectory_group WHERE job_id = %(job)s AND state = ANY(%(waiting)s)),
                  (SELECT coalesce(sum(b.num_groups), 0)::int FROM trajectory_batch b JOIN jobs_job j ON j.id = b.job_id
                   WHERE b.job_id = %(job)s AND b.number > least(j.published_batch, (
                       SELECT min(coalesce(v.batch_number, 0)) FROM scheduling_phase p
                       JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = p.served_version
                       WHERE p.job_id = %(job)s AND p.role = %(rollout)s AND p.state = %(active)s
                             AND NOT {IS_TOO_OLD}))),
                  (SELECT coalesce(max(index), -1) + 1 FROM trajectory_group
                   WHERE job_id = %(job)s AND evaluation_version IS NULL),
                  (SELECT coalesce(max(number), 0) FROM trajectory_batch WHERE job_id = %(job)s)""",
        {
            "job": job_id,
            "waiting": [GroupState.OPEN.value, GroupState.READY.value],
            "rollout": Role.ROLLOUT.value,
            "active": PhaseState.ACTIVE.value,
        },
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
    ahead = counts.num_waiting + counts.num_in_training
    staleness_room = per_batch * (spec.algorithm.max_staleness + 1) - ahead
    needed = per_batch * (remaining + 1) - counts.num_waiting
    return max(0, min(staleness_room, needed))
