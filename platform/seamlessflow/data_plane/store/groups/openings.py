"""Requests that opened external sessions: a request that is sent again finds the session that it opened before."""

import datetime
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.data_plane.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Opening:
    """`digest`: of the request's body."""

    session_id: UUID
    digest: bytes
    key_digest: bytes
    expires_at: datetime.datetime


async def opening_read(connection: Connection, project_id: UUID, key: str) -> Opening | None:
    """Return the session that a request with this Idempotency-Key opened in the project."""
    cursor = await connection.execute(
        """SELECT id, open_digest, key_digest, expires_at FROM trajectory_session
           WHERE project_id = %s AND open_key = %s""",
        [project_id, key],
    )
    row = await cursor.fetchone()
    return None if row is None else Opening(row[0], bytes(row[1]), bytes(row[2]), row[3])


async def opening_store(
    connection: Connection, session_id: UUID, *, key: str | None, digest: bytes, ttl_s: float
) -> datetime.datetime:
    """Note which request opened a session. Returns when it expires. Raises UniqueViolation for a key that is taken."""
    cursor = await connection.execute(
        """UPDATE trajectory_session SET open_key = %s, open_digest = %s,
                  expires_at = now() + make_interval(secs => %s) WHERE id = %s RETURNING expires_at""",
        [key, digest if key is not None else None, ttl_s, session_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    expires_at: datetime.datetime = row[0]
    return expires_at
