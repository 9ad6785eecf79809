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
from seamlessflow.data_plane.store.connection import Connection, named_rows, new_id
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, GroupState, PhaseState, Role)


@dataclass(frozen=True, slots=True)
class ServedBatches:
    """Numbers of batches: the last one that is published, and the last ones that engines serve."""

    published: int
    by_all: int  # by every engine within the staleness bound
    by_any: (
        int  # by some engine; at most one less than `published`, so that engines that are stuck delay no job
    )


async def batches_served(connection: Connection, job_id: UUID, bound: StalenessBound) -> ServedBatches:
    (row,) = await named_rows(connection, SQL["served"], {"job": job_id})
    published: int = row.published_batch
    served = [batch for batch in row.served if bound.allows(published - batch)] or [published]
    return ServedBatches(
        published, min([published, *served]), max(published - 1, min(published, max(served)))
    )


async def group_counts(
    connection: Connection, job_id: UUID, served: ServedBatches, *, late_after_s: float | None
) -> GroupCounts:
    """Count the groups. `late_after_s`: the age of open groups that are late; None if none are."""
    values = {"job": job_id, "by_all": served.by_all, "by_any": served.by_any, "late_after_s": late_after_s}
    (row,) = await named_rows(connection, SQL["counts"], values)
    return GroupCounts(**row._asdict())


async def pace_read(connection: Connection, job_id: UUID, published_batch: int) -> JobPace | None:
    """Measure the newest published batches."""
    rows = await named_rows(
        connection,
        SQL["pace"],
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
                step_s=row.step_s,
                wait_s=row.wait_s or 0.0,
                sojourns_s=tuple(row.sojourns_s),
                longest_s=row.longest_s,
            )
            for row in rows
            if row.longest_s is not None  # a batch whose groups are no more is no evidence about groups
        ]
    )


async def lull_begin(connection: Connection, *, job_id: UUID, project_id: UUID) -> None:
    """Begin a lull; change nothing if one is open already."""
    await connection.execute(
        SQL["lull_begin"],
        {"id": new_id(), "project": project_id, "job": job_id},
    )


async def lull_end(connection: Connection, job_id: UUID) -> None:
    await connection.execute(
        "UPDATE trajectory_lull SET ended_at = clock_timestamp() WHERE job_id = %s AND ended_at IS NULL",
        [job_id],
    )
