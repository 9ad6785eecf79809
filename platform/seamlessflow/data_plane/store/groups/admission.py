"""Counts how many new groups may begin, and records lulls: times in which runners had room and no group could begin.

The counts come from durable state, so a restart never inflates them. Two bounds hold. Staleness bounds the groups that
wait: those that are open, ready, or in a batch that engines do not serve yet are at most
groups_per_batch × StalenessBound.num_batches_ahead. The remaining updates bound the groups to what they need, with one
batch to spare. An engine that is too far behind to sample for training gets no turns and delays nobody. At most one
lull of a job is open, and the next session that begins ends it. Call everything here under the job's lock.
"""

from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.connection import Connection, new_id


@dataclass(frozen=True, slots=True)
class GroupCounts:
    num_waiting: int  # open and ready
    num_in_training: int  # in batches that some active engine does not serve yet
    next_index: int
    last_batch: int


async def group_counts(connection: Connection, job_id: UUID, bound: StalenessBound) -> GroupCounts:
    through = await _batch_served(connection, job_id, bound)
    cursor = await connection.execute(
        """SELECT (SELECT count(*) FROM trajectory_group WHERE job_id = %(job)s AND state = ANY(%(waiting)s)),
                  (SELECT coalesce(sum(num_groups), 0)::int FROM trajectory_batch
                   WHERE job_id = %(job)s AND number > %(through)s),
                  (SELECT coalesce(max(index), -1) + 1 FROM trajectory_group
                   WHERE job_id = %(job)s AND evaluation_version IS NULL),
                  (SELECT coalesce(max(number), 0) FROM trajectory_batch WHERE job_id = %(job)s)""",
        {"job": job_id, "waiting": [GroupState.OPEN.value, GroupState.READY.value], "through": through},
    )
    row = await cursor.fetchone()
    assert row is not None
    return GroupCounts(*row)


async def _batch_served(connection: Connection, job_id: UUID, bound: StalenessBound) -> int:
    """Return the last batch that every engine within the staleness bound serves."""
    cursor = await connection.execute(
        """SELECT j.published_batch, array(
                      SELECT coalesce(v.batch_number, 0) FROM scheduling_phase p
                      JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = p.served_version
                      WHERE p.job_id = j.id AND p.role = %s AND p.state = %s)
           FROM jobs_job j WHERE j.id = %s""",
        [Role.ROLLOUT.value, PhaseState.ACTIVE.value, job_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    published: int = row[0]
    served: list[int] = row[1]
    return min([published, *(batch for batch in served if bound.allows(published - batch))])


def num_admissible(spec: JobSpec, counts: GroupCounts) -> int:
    """Return how many new groups may begin now."""
    per_batch = spec.rollout.groups_per_batch
    remaining = spec.train.num_updates - counts.last_batch
    if remaining <= 0:
        return 0
    ahead = counts.num_waiting + counts.num_in_training
    staleness_room = per_batch * spec.algorithm.staleness_bound.num_batches_ahead - ahead
    needed = per_batch * (remaining + 1) - counts.num_waiting
    return max(0, min(staleness_room, needed))


async def lull_begin(connection: Connection, *, job_id: UUID, project_id: UUID) -> None:
    """Begin a lull; change nothing if one is open already."""
    await connection.execute(
        """INSERT INTO trajectory_lull (id, project_id, job_id, began_at)
           SELECT %(id)s, %(project)s, %(job)s, clock_timestamp()
           WHERE NOT EXISTS (SELECT FROM trajectory_lull WHERE job_id = %(job)s AND ended_at IS NULL)""",
        {"id": new_id(), "project": project_id, "job": job_id},
    )


async def lull_end(connection: Connection, job_id: UUID) -> None:
    await connection.execute(
        "UPDATE trajectory_lull SET ended_at = clock_timestamp() WHERE job_id = %s AND ended_at IS NULL",
        [job_id],
    )
