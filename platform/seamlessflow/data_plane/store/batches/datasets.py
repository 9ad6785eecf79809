"""The `DatasetStore` on PostgreSQL: rows that were written at the job's submission, read one batch at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.data_plane.store.batches.batch_rows import finished_sessions
from seamlessflow.data_plane.store.connection import Pool


@dataclass(frozen=True, slots=True)
class DatasetGroup:
    """A recorded group of an offline dataset, with the sessions of it that are trained."""

    group_id: UUID
    session_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class PostgresDatasets:
    pool: Pool

    async def groups(self, job_id: UUID, positions: Sequence[int]) -> list[DatasetGroup]:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(
                """SELECT position, group_id, session_ids FROM trajectory_dataset
                   WHERE job_id = %s AND position = ANY(%s)""",
                [job_id, list(positions)],
            )
            found = {row[0]: DatasetGroup(row[1], tuple(row[2])) for row in await cursor.fetchall()}
        return [found[position] for position in positions if position in found]

    async def sessions(self, groups: Sequence[DatasetGroup]) -> list[list[FinishedSession]]:
        chosen = [session for group in groups for session in group.session_ids]
        async with self.pool.connection() as connection:
            return await finished_sessions(connection, [group.group_id for group in groups], chosen=chosen)
