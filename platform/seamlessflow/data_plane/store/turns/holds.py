"""Rows of held time: how long each session waited for engines, and when the gateway itself was away.

All times are the database's. If `held_since` of a session is set, its stall timer was running when the row was written
and has run since. When a gateway dies, the timer stops at its last sign of life, where its absence begins.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import SessionKey

ABSENCES_KEPT = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class HoldRow:
    key: SessionKey
    held_s: float
    is_running: bool
    stretch: int


async def life_sign(
    connection: Connection, gateway: str, *, gap_s: float | None
) -> tuple[datetime.datetime | None, datetime.datetime]:
    """Record that this gateway is alive. Returns its previous sign of life and the current time.

    `gap_s` is the time since this process's last sign, by its own clock. If it is None, the process has just started,
    and its predecessor's last sign counts. The first moment returned is None if there was no earlier sign.
    """
    cursor = await connection.execute(
        "SELECT seen_at FROM trajectory_gateway_life WHERE gateway = %s FOR UPDATE", [gateway]
    )
    known = await cursor.fetchone()
    cursor = await connection.execute(
        """INSERT INTO trajectory_gateway_life (gateway, seen_at) VALUES (%s, clock_timestamp())
           ON CONFLICT (gateway) DO UPDATE SET seen_at = excluded.seen_at RETURNING seen_at""",
        [gateway],
    )
    row = await cursor.fetchone()
    assert row is not None
    now: datetime.datetime = row[0]
    if known is None:
        return None, now
    began: datetime.datetime = known[0] if gap_s is None else now - datetime.timedelta(seconds=gap_s)
    return min(began, now), now


async def absence_record(
    connection: Connection, gateway: str, began_at: datetime.datetime, ended_at: datetime.datetime
) -> None:
    await connection.execute(
        "INSERT INTO trajectory_gateway_absence (gateway, began_at, ended_at) VALUES (%s, %s, %s)",
        [gateway, began_at, ended_at],
    )
    await connection.execute(
        "DELETE FROM trajectory_gateway_absence WHERE ended_at < %s", [ended_at - ABSENCES_KEPT]
    )


async def absence_open_holds_close(connection: Connection, gateway: str, began_at: datetime.datetime) -> None:
    """Stop the timers that ran when the gateway was last seen; from then on its absence counts."""
    await connection.execute(
        """UPDATE trajectory_session_hold
           SET held_s = held_s + greatest(extract(epoch FROM %s - held_since), 0), held_since = NULL
           WHERE gateway = %s AND held_since IS NOT NULL""",
        [began_at, gateway],
    )


async def holds_write(connection: Connection, gateway: str, rows: Sequence[HoldRow]) -> None:
    """Write the rows, except those of sessions that were deleted meanwhile."""
    if not rows:
        return
    await connection.execute(
        """INSERT INTO trajectory_session_hold AS h (session_id, project_id, gateway, held_s, held_since)
           SELECT v.session, s.project_id, %s, v.held_s, CASE WHEN v.is_running THEN clock_timestamp() END
           FROM unnest(%s::uuid[], %s::float8[], %s::bool[]) AS v (session, held_s, is_running)
           JOIN trajectory_session s ON s.id = v.session
           ON CONFLICT (session_id) DO UPDATE
           SET gateway = excluded.gateway, held_s = excluded.held_s, held_since = excluded.held_since""",
        [
            gateway,
            [row.key.session_id for row in rows],
            [row.held_s for row in rows],
            [row.is_running for row in rows],
        ],
    )


async def hold_read(connection: Connection, session_id: UUID) -> float:
    """Return the held seconds recorded for a session so far."""
    cursor = await connection.execute(
        """SELECT held_s + coalesce(extract(epoch FROM clock_timestamp() - held_since)::float8, 0)
           FROM trajectory_session_hold WHERE session_id = %s""",
        [session_id],
    )
    row = await cursor.fetchone()
    return float(row[0]) if row else 0.0


async def sessions_held_read(
    connection: Connection, gateway: str, job_id: UUID, session_ids: Sequence[UUID]
) -> dict[UUID, tuple[float, float]]:
    """Read for each session of the job its held seconds, and the seconds this gateway was away while it was open."""
    cursor = await connection.execute(
        """SELECT s.id,
                  coalesce(h.held_s + coalesce(extract(epoch FROM clock_timestamp() - h.held_since)::float8, 0), 0),
                  (SELECT coalesce(sum(extract(epoch FROM least(a.ended_at, coalesce(s.closed_at, a.ended_at))
                                                          - greatest(a.began_at, s.opened_at)))::float8, 0)
                   FROM trajectory_gateway_absence a
                   WHERE a.gateway = %s AND a.ended_at > s.opened_at
                         AND a.began_at < coalesce(s.closed_at, a.ended_at))
           FROM trajectory_session s LEFT JOIN trajectory_session_hold h ON h.session_id = s.id
           WHERE s.id = ANY(%s) AND s.job_id = %s""",
        [gateway, list(session_ids), job_id],
    )
    return {session: (float(noted), float(away)) async for session, noted, away in cursor}
