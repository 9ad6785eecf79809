"""Writes event rows (the outbox) and notifies the scheduler, in the transaction of the change they report."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.sessions import SessionRow

AUTHOR = "gateway"


async def scheduler_notify(connection: Connection, reason: str) -> None:
    await connection.execute("SELECT pg_notify('sf_scheduler', %s)", [reason])


async def job_event(
    connection: Connection,
    *,
    project_id: UUID,
    job_id: UUID,
    kind: str,
    from_state: str = "",
    to_state: str = "",
    reason: str = "",
    data: dict[str, Any],
) -> None:
    await connection.execute(
        """INSERT INTO common_event
               (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
           VALUES (%s, 'job', %s, %s, %s, %s, %s, %s, %s, %s, now())""",
        [project_id, job_id, job_id, kind, from_state, to_state, reason, AUTHOR, Jsonb(data)],
    )


async def length_bias_event(connection: Connection, *, project_id: UUID, job_id: UUID, warning: str) -> None:
    """Warn that failures depend on the length of sessions; at most once per job."""
    kind = "job.length_bias"
    await connection.execute(
        """INSERT INTO common_event
               (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
           SELECT %s, 'job', %s, %s, %s, '', '', %s, %s, '{}', now()
           WHERE NOT EXISTS (SELECT FROM common_event WHERE subject_id = %s AND kind = %s)""",
        [project_id, job_id, job_id, kind, warning, AUTHOR, job_id, kind],
    )


async def engine_event(
    connection: Connection, *, job_id: UUID, kind: str, reason: str, data: dict[str, Any]
) -> None:
    """Write an event about an engine, as an event of the job that it serves."""
    await connection.execute(
        """INSERT INTO common_event
               (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
           SELECT project_id, 'job', id, id, %s, '', '', %s, %s, %s, now() FROM jobs_job WHERE id = %s""",
        [kind, reason, AUTHOR, Jsonb(data), job_id],
    )


async def outcome_refused_event(connection: Connection, session: SessionRow, *, refused: str) -> None:
    """Record that a different outcome was reported for a closed session; at most one event per session."""
    kind = "session.outcome_refused"
    reason = (
        f"the session is closed with the reward {session.reward:g}; {refused} was reported later and refused"
    )
    await connection.execute(
        """INSERT INTO common_event
               (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
           SELECT %s, 'session', %s, %s, %s, '', '', %s, %s, %s, now()
           WHERE NOT EXISTS (SELECT FROM common_event WHERE subject_id = %s AND kind = %s)""",
        [
            session.project_id, session.session_id, session.job_id, kind, reason, AUTHOR,
            Jsonb({"reward": session.reward}), session.session_id, kind,
        ],
    )  # fmt: skip
