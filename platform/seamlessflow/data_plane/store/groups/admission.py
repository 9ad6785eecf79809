"""Reads the counts on which the admission of groups depends, and records lulls: times in which runners had room and no
group could begin.

Everything is counted and measured in durable rows, so a restart never inflates it. An engine that is too far behind to
sample for training gets no turns and delays no other. At most one lull of a job is open, and the next session that
begins ends it. Call everything here under the job's lock.
"""

from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.admission.pace import NUM_BATCHES_MEASURED, JobPace, MeasuredBatch, pace_of
from seamlessflow.core.admission.rule import GroupCounts
from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.connection import Connection, new_id


@dataclass(frozen=True, slots=True)
class ServedBatches:
    """Numbers of batches: the last one that is published, and the last ones that engines serve."""

    published: int
    by_all: int  # by every engine within the staleness bound
    by_any: (
        int  # by some engine; at most one less than `published`, so that engines that are stuck delay no job
    )


async def batches_served(connection: Connection, job_id: UUID, bound: StalenessBound) -> ServedBatches:
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
    served = [batch for batch in row[1] if bound.allows(published - batch)] or [published]
    return ServedBatches(
        published, min([published, *served]), max(published - 1, min(published, max(served)))
    )


async def group_counts(
    connection: Connection, job_id: UUID, served: ServedBatches, *, late_after_s: float | None
) -> GroupCounts:
    """Count the groups. `late_after_s`: the age of open groups that are late; None if none are."""
    cursor = await connection.execute(
        """SELECT (SELECT count(*) FROM trajectory_group WHERE job_id = %(job)s AND state = ANY(%(waiting)s)),
                  (SELECT coalesce(sum(num_groups), 0)::int FROM trajectory_batch
                   WHERE job_id = %(job)s AND number > %(by_all)s),
                  (SELECT coalesce(sum(num_groups), 0)::int FROM trajectory_batch
                   WHERE job_id = %(job)s AND number > %(by_any)s),
                  (SELECT count(*) FROM trajectory_group
                   WHERE job_id = %(job)s AND state = %(open)s
                     AND created_at < clock_timestamp() - make_interval(secs => %(late_after_s)s)),
                  (SELECT coalesce(max(index), -1) + 1 FROM trajectory_group
                   WHERE job_id = %(job)s AND evaluation_version IS NULL),
                  (SELECT coalesce(max(number), 0) FROM trajectory_batch WHERE job_id = %(job)s)""",
        {
            "job": job_id,
            "waiting": [GroupState.OPEN.value, GroupState.READY.value],
            "open": GroupState.OPEN.value,
            "by_all": served.by_all,
            "by_any": served.by_any,
            "late_after_s": late_after_s,
        },
    )
    row = await cursor.fetchone()
    assert row is not None
    return GroupCounts(*row)


async def pace_read(connection: Connection, job_id: UUID, published_batch: int) -> JobPace | None:
    """Measure the newest published batches. The room for a group was made by the last publication before it."""
    cursor = await connection.execute(
        """WITH published AS MATERIALIZED (
               SELECT version, batch_number, published_at,
                      lag(published_at) OVER (ORDER BY version) AS freed_at
               FROM policies_policyversion
               WHERE job_id = %(job)s AND batch_number > %(oldest)s AND batch_number <= %(newest)s)
           SELECT extract(epoch FROM p.published_at - greatest(b.created_at, p.freed_at))::float8,
                  extract(epoch FROM greatest(b.created_at - p.freed_at, interval '0'))::float8,
                  took.sojourns_s, took.longest_s
           FROM published p
           JOIN trajectory_batch b ON b.job_id = %(job)s AND b.number = p.batch_number
           CROSS JOIN LATERAL (
               SELECT coalesce(array_agg(extract(epoch FROM g.ready_at - room.made_at)::float8)
                                   FILTER (WHERE room.made_at IS NOT NULL), '{}') AS sojourns_s,
                      max(extract(epoch FROM g.ready_at - g.created_at))::float8 AS longest_s
               FROM trajectory_group g
               CROSS JOIN LATERAL (
                   SELECT coalesce(max(made.published_at) FILTER (WHERE made.published_at <= g.created_at),
                                   CASE WHEN %(oldest)s > 0 THEN min(made.published_at) END) AS made_at
                   FROM published made) room
               WHERE g.job_id = %(job)s AND g.batch_number = b.number AND g.ready_at IS NOT NULL) took
           WHERE p.freed_at IS NOT NULL OR b.number = 1
           ORDER BY b.number DESC LIMIT %(num)s""",
        {
            "job": job_id,
            # The groups of the oldest batch were admitted some publications earlier.
            "oldest": published_batch - 2 * NUM_BATCHES_MEASURED,
            "newest": published_batch,
            "num": NUM_BATCHES_MEASURED,
        },
    )
    return pace_of(
        [
            MeasuredBatch(
                step_s=step_s, wait_s=wait_s or 0.0, sojourns_s=tuple(sojourns), longest_s=longest_s
            )
            for step_s, wait_s, sojourns, longest_s in await cursor.fetchall()
            if longest_s is not None  # a batch whose groups are no more is no evidence about groups
        ]
    )


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
