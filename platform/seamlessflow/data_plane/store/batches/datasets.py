"""Recorded groups that a job trains on: rows written with the job, read a batch at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection


@dataclass(frozen=True, slots=True)
class DatasetGroup:
    group_id: UUID
    session_ids: tuple[UUID, ...]  # those that are trained


async def dataset_groups(
    connection: Connection, job_id: UUID, positions: Sequence[int]
) -> list[DatasetGroup]:
    """In the order asked for; fewer where their source was deleted since."""
    cursor = await connection.execute(
        "SELECT position, group_id, session_ids FROM trajectory_dataset WHERE job_id = %s AND position = ANY(%s)",
        [job_id, list(positions)],
    )
    found = {row[0]: DatasetGroup(row[1], tuple(row[2])) for row in await cursor.fetchall()}
    return [found[position] for position in positions if position in found]
