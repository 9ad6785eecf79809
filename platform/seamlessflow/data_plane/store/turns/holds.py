"""Rows of held time: how long each session waited for engines, and how long its gateway was away.

All times are the database's. If `held_since` of a session is set, its stall timer was running when the row was written
and has run since. `store/gateways` stops it at the last sign of life of a gateway that dies, and counts its absence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import SessionKey


@dataclass(frozen=True, slots=True)
class HoldRow:
    key: SessionKey
    held_s: float
    is_running: bool
    stretch: int


async def holds_write(connection: Connection, gateway: str, rows: Sequence[HoldRow]) -> None:
    """Write the rows, except those of sessions that were deleted meanwhile or that another epoch holds now."""
    if not rows:
        return
    await connection.execute(
        """INSERT INTO trajectory_session_hold AS h (session_id, project_id, gateway, held_s, held_since)
           SELECT v.session, s.project_id, %s, v.held_s, CASE WHEN v.is_running THEN clock_timestamp() END
           FROM unnest(%s::uuid[], %s::float8[], %s::bool[], %s::bigint[]) AS v (session, held_s, is_running, epoch)
           JOIN trajectory_session s ON s.id = v.session AND s.gateway_epoch = v.epoch
           ON CONFLICT (session_id) DO UPDATE
           SET gateway = excluded.gateway, held_s = excluded.held_s, held_since = excluded.held_since""",
        [
            gateway,
            [row.key.session_id for row in rows],
            [row.held_s for row in rows],
            [row.is_running for row in rows],
            [row.key.epoch for row in rows],
        ],
    )


async def hold_read(connection: Connection, session_id: UUID) -> float:
    """Return the seconds recorded so far for which a session's turns waited for engines."""
    cursor = await connection.execute(
        """SELECT held_s + coalesce(extract(epoch FROM clock_timestamp() - held_since)::float8, 0)
           FROM trajectory_session_hold WHERE session_id = %s""",
        [session_id],
    )
    row = await cursor.fetchone()
    return float(row[0]) if row else 0.0


async def sessions_held_read(
    connection: Connection, job_id: UUID, session_ids: Sequence[UUID]
) -> dict[UUID, tuple[float, float]]:
    """Read for each session of the job for how long its turns waited, and for how long its gateway was away."""
    cursor = await connection.execute(
        """SELECT s.id,
                  coalesce(h.held_s + coalesce(extract(epoch FROM clock_timestamp() - h.held_since)::float8, 0), 0),
                  coalesce(h.away_s, 0)
           FROM trajectory_session s LEFT JOIN trajectory_session_hold h ON h.session_id = s.id
           WHERE s.id = ANY(%s) AND s.job_id = %s""",
        [list(session_ids), job_id],
    )
    return {session: (float(noted), float(away)) async for session, noted, away in cursor}
