"""Lulls of a job: times in which its runners had room and nothing was left to begin.

Call under the job's lock. A lull ends with the next session that begins; at most one is open.
"""

from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection, new_id


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
