"""Rows of external sessions that have gone silent, and of groups in which no client opens sessions any more.

All times are the database's. Invariant: no statement here waits for a session to which a turn is being written, so none
can deadlock with the writer of turns; the next poll handles the sessions that were skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, GroupState, SessionState, over=TERMINAL_JOB_STATES)


@dataclass(frozen=True, slots=True)
class SilentSession:
    session_id: UUID
    job_id: UUID
    group_id: UUID


async def sessions_renew(connection: Connection, ttls_s: Mapping[UUID, float]) -> tuple[set[UUID], set[UUID]]:
    """Postpone the expiry of active sessions. Each row is written at most ten times per time to live.

    Returns the sessions to retry, because their rows are being written, and the sessions that are over.
    """
    rows = await named_rows(
        connection, SQL["expiries"], {"sessions": list(ttls_s), "ttls_s": list(ttls_s.values())}
    )
    over = {row.id for row in rows if row.state != SessionState.OPEN}
    due = {row.id for row in rows if row.is_due} - over
    if not due:
        return set(), over
    values = {"sessions": list(due), "ttls_s": [ttls_s[session] for session in due]}
    return due - {row.id for row in await named_rows(connection, SQL["renew"], values)}, over


async def sessions_silent(
    connection: Connection, *, heard_for_s: float, listen_s: float
) -> list[SilentSession]:
    """Return expired open sessions, if this gateway has listened for their time to live or for `listen_s`."""
    values = {"most_s": listen_s, "listened_s": heard_for_s}
    return [SilentSession(**row._asdict()) for row in await named_rows(connection, SQL["silent"], values)]


async def silent_lock(connection: Connection, session_ids: Sequence[UUID]) -> dict[UUID, float | None]:
    """Lock the sessions that are still expired, and return the reward reported for each, None if there is none."""
    rows = await named_rows(connection, SQL["lock"], {"sessions": list(session_ids)})
    return {row.id: row.reward for row in rows}


async def groups_given_up(
    connection: Connection, *, heard_for_s: float, listen_s: float, least_s: float
) -> list[tuple[UUID, UUID]]:
    """Return open groups, with their jobs, in which no session is open or has ended recently.

    Recently means within the job's time to live or `least_s`, whichever is longer.
    """
    values = {"most_s": listen_s, "listened_s": heard_for_s, "least_s": least_s}
    return [(row.id, row.job_id) for row in await named_rows(connection, SQL["given_up"], values)]
