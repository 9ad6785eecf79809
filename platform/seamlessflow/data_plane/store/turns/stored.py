"""The `TurnStore` on PostgreSQL: reads from a pool, commits through the one writer of turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.jobs import JobRow, job_read
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey, nodes_read
from seamlessflow.data_plane.store.turns.sessions import StoredSession, session_read
from seamlessflow.data_plane.store.turns.writer import TurnWriter


@dataclass(frozen=True, slots=True)
class PostgresTurns:
    pool: Pool
    writer: TurnWriter

    async def job(self, job_id: UUID) -> JobRow | None:
        async with self.pool.connection() as connection:
            return await job_read(connection, job_id)

    async def session(self, session_id: UUID) -> StoredSession | None:
        async with self.pool.connection() as connection:
            row = await session_read(connection, session_id)
            if row is None:
                return None
            nodes = await nodes_read(connection, [(row.month, session_id)])
        return StoredSession(row, nodes[session_id])

    async def nodes(self, key: SessionKey) -> list[NodeRow]:
        async with self.pool.connection() as connection:
            return (await nodes_read(connection, [(key.month, key.session_id)]))[key.session_id]

    async def commit(self, rows: Sequence[NodeRow]) -> None:
        await self.writer.commit(rows)
