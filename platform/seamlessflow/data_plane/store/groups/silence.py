"""Rows of external sessions that have gone silent, and of groups in which no client opens sessions any more.

All times are the database's. Invariant: no statement here waits for a session to which a turn is being written, so none
can deadlock with the writer of turns; the next poll handles the sessions that were skipped.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.values import sql_literal

_GROUP_OPEN = sql_literal(GroupState.OPEN)
_SESSION_OPEN = sql_literal(SessionState.OPEN)

_TERMINAL = sorted(state.value for state in TERMINAL_JOB_STATES)
# 900 s is the time to live of jobs whose stored spec has none. At most 500 rows per poll.
_SILENT = f"""
    SELECT s.id, s.job_id, s.group_id FROM trajectory_session s JOIN jobs_job j ON j.id = s.job_id
    WHERE s.state = {_SESSION_OPEN} AND s.expires_at < now()
      AND least(coalesce((j.spec->'environment'->>'session_ttl_s')::float8, 900), %s) <= %s
    ORDER BY s.id LIMIT 500"""
_GIVEN_UP = f"""
    SELECT g.id, g.job_id FROM jobs_job j
    CROSS JOIN LATERAL (SELECT coalesce((j.spec->'environment'->>'session_ttl_s')::float8, 900) AS ttl_s) t
    JOIN trajectory_group g ON g.job_id = j.id AND g.state = {_GROUP_OPEN}
    WHERE j.state <> ALL(%s) AND j.spec->'environment'->>'name' = 'external' AND least(t.ttl_s, %s) <= %s
      AND NOT EXISTS (SELECT FROM trajectory_session s WHERE s.group_id = g.id AND (
              s.state = {_SESSION_OPEN} OR s.closed_at > now() - make_interval(secs => greatest(t.ttl_s, %s))))
    ORDER BY g.id LIMIT 500"""


@dataclass(frozen=True, slots=True)
class SilentSession:
    session_id: UUID
    job_id: UUID
    group_id: UUID


async def sessions_renew(connection: Connection, ttls_s: Mapping[UUID, float]) -> tuple[set[UUID], set[UUID]]:
    """Postpone the expiry of active sessions. Each row is written at most ten times per time to live.

    Returns the sessions to retry, because their rows are being written, and the sessions that are over.
    """
    cursor = await connection.execute(
        """SELECT s.id, s.state, s.expires_at < now() + make_interval(secs => 0.9 * t.ttl_s)
           FROM trajectory_session s JOIN unnest(%s::uuid[], %s::float8[]) AS t (id, ttl_s) ON t.id = s.id""",
        [list(ttls_s), list(ttls_s.values())],
    )
    rows = await cursor.fetchall()
    over = {session for session, state, _ in rows if state != SessionState.OPEN}
    due = {session for session, _, is_due in rows if is_due} - over
    if not due:
        return set(), over
    cursor = await connection.execute(
        f"""UPDATE trajectory_session s SET expires_at = now() + make_interval(secs => t.ttl_s)
           FROM unnest(%s::uuid[], %s::float8[]) AS t (id, ttl_s)
           WHERE t.id = s.id AND s.id IN (SELECT id FROM trajectory_session
                                          WHERE id = ANY(%s) AND state = {_SESSION_OPEN}
                                          FOR UPDATE SKIP LOCKED) RETURNING s.id""",
        [list(due), [ttls_s[session] for session in due], list(due)],
    )
    return due - {row[0] for row in await cursor.fetchall()}, over


async def sessions_silent(
    connection: Connection, *, heard_for_s: float, listen_s: float
) -> list[SilentSession]:
    """Return expired open sessions, if this gateway has listened for their time to live or for `listen_s`."""
    cursor = await connection.execute(_SILENT, [listen_s, heard_for_s])
    return [SilentSession(*row) for row in await cursor.fetchall()]


async def silent_lock(connection: Connection, session_ids: Sequence[UUID]) -> dict[UUID, float | None]:
    """Lock the sessions that are still expired, and return the reward reported for each, None if there is none."""
    cursor = await connection.execute(
        f"""SELECT id, reward FROM trajectory_session
           WHERE id = ANY(%s) AND state = {_SESSION_OPEN} AND expires_at < now() ORDER BY id FOR UPDATE SKIP LOCKED""",
        [list(session_ids)],
    )
    return dict(await cursor.fetchall())


async def groups_given_up(
    connection: Connection, *, heard_for_s: float, listen_s: float, least_s: float
) -> list[tuple[UUID, UUID]]:
    """Return open groups, with their jobs, in which no session is open or has ended recently.

    Recently means within the job's time to live or `least_s`, whichever is longer.
    """
    cursor = await connection.execute(_GIVEN_UP, [_TERMINAL, listen_s, heard_for_s, least_s])
    return [(row[0], row[1]) for row in await cursor.fetchall()]
