"""Session rows: read back with their sessions, found by the request that opened them, moved to their outcomes."""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.environment.failures import UNCHARGED, FailureKind
from seamlessflow.core.lifecycle.groups import SESSION_MOVES, SessionState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey
from seamlessflow.runtime.sql import sql_literal

_SESSION_FAILED = sql_literal(SessionState.FAILED)
_SESSION_OPEN = sql_literal(SessionState.OPEN)


@dataclass(frozen=True, slots=True)
class SessionRow:
    session_id: UUID
    project_id: UUID
    job_id: UUID
    group_id: UUID
    month: datetime.date
    state: SessionState
    key_digest: bytes
    reward: float | None
    reason: str = ""
    evaluation_version: int | None = None  # of its group
    gateway_epoch: int | None = None  # the only one that may write its turns
    slot: int = 0  # of its group
    attempt: int = 1  # of its slot


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session and its recorded nodes, in order of their index."""

    row: SessionRow
    nodes: Sequence[NodeRow]

    @property
    def key(self) -> SessionKey:
        row = self.row
        return SessionKey(row.session_id, row.month, row.project_id, row.job_id, row.gateway_epoch or 0)


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """How a session ends. Without a reward it failed for `reason`; `is_requeued`: the failure does not count."""

    reward: float | None
    reason: str = ""
    is_timeout: bool = False
    is_requeued: bool = False
    metrics: dict[str, float] | None = None
    failure: FailureKind = FailureKind.AGENT  # if it failed

    @property
    def state(self) -> SessionState:
        return SessionState.FAILED if self.reward is None else SessionState.CLOSED

    @property
    def is_accident(self) -> bool:
        """Whether it failed for a reason that is not its agent's, so that the next attempt may resume it."""
        return self.reward is None and self.failure in UNCHARGED


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """A failed attempt of a slot."""

    session_id: UUID
    month: datetime.date
    failure: str
    num_turns: int


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """An earlier attempt of a session's slot, and its recorded nodes, in order of their index.

    failed: all attempts since the agent itself broke one.
    """

    session_id: UUID
    nodes: Sequence[NodeRow]
    failed: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """The request that opened an external session. `digest` is that of the request's body."""

    session_id: UUID
    group_id: UUID
    digest: bytes
    key_digest: bytes
    expires_at: datetime.datetime


async def sessions_read(connection: Connection, session_ids: Sequence[UUID]) -> dict[UUID, SessionRow]:
    """Read the sessions, leaving out those that do not exist."""
    cursor = await connection.execute(
        """SELECT s.id, s.project_id, s.job_id, s.group_id, s.month, s.state, s.key_digest, s.reward, s.reason,
                  g.evaluation_version, s.gateway_epoch, s.slot, s.attempt
           FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id WHERE s.id = ANY(%s)""",
        [list(session_ids)],
    )
    return {row[0]: _session_row(*row) async for row in cursor}


def _session_row(*values: Any) -> SessionRow:
    session, project, job, group, month, state, digest, *others = values
    return SessionRow(session, project, job, group, month, SessionState(state), bytes(digest), *others)


async def session_read(connection: Connection, session_id: UUID) -> SessionRow | None:
    return (await sessions_read(connection, [session_id])).get(session_id)


async def earlier_attempts(connection: Connection, session_id: UUID) -> list[EarlierAttempt]:
    """Read the failed attempts of a session's slot before it, oldest first."""
    cursor = await connection.execute(
        f"""SELECT e.id, e.month, e.failure, e.num_turns FROM trajectory_session s
           JOIN trajectory_session e ON e.group_id = s.group_id AND e.slot = s.slot AND e.attempt < s.attempt
           WHERE s.id = %s AND e.state = {_SESSION_FAILED} ORDER BY e.attempt""",
        [session_id],
    )
    return [EarlierAttempt(*row) for row in await cursor.fetchall()]


async def session_lock(connection: Connection, session_id: UUID) -> SessionRow:
    """Lock an existing session until the transaction ends, and return its current row."""
    await connection.execute("SELECT 1 FROM trajectory_session WHERE id = %s FOR UPDATE", [session_id])
    row = await session_read(connection, session_id)
    assert row is not None
    return row


async def opening_read(connection: Connection, project_id: UUID, key: str) -> Opening | None:
    """Return the session that a request with this Idempotency-Key opened in the project; None if there is none."""
    cursor = await connection.execute(
        """SELECT id, group_id, open_digest, key_digest, expires_at FROM trajectory_session
           WHERE project_id = %s AND open_key = %s""",
        [project_id, key],
    )
    row = await cursor.fetchone()
    return None if row is None else Opening(row[0], row[1], bytes(row[2]), bytes(row[3]), row[4])


async def opening_store(
    connection: Connection, session_id: UUID, *, key: str | None, digest: bytes, ttl_s: float
) -> datetime.datetime:
    """Record which request opened a session. Returns when it expires. Raises UniqueViolation if the key is taken."""
    cursor = await connection.execute(
        """UPDATE trajectory_session SET open_key = %s, open_digest = %s,
                  expires_at = now() + make_interval(secs => %s) WHERE id = %s RETURNING expires_at""",
        [key, digest if key is not None else None, ttl_s, session_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    expires_at: datetime.datetime = row[0]
    return expires_at


async def sessions_end(connection: Connection, outcomes: Mapping[UUID, SessionOutcome]) -> set[UUID]:
    """Give open sessions their outcomes. Returns the sessions that had not ended before."""
    for outcome in outcomes.values():
        SESSION_MOVES.check(SessionState.OPEN, outcome.state)
    given = outcomes.values()
    cursor = await connection.execute(
        f"""UPDATE trajectory_session s
           SET state = v.state, reward = v.reward, reason = v.reason, is_timeout = v.is_timeout,
               is_requeued = v.is_requeued, failure = v.failure, metrics = s.metrics || v.metrics, closed_at = now()
           FROM unnest(%s::uuid[], %s::text[], %s::float8[], %s::text[], %s::bool[], %s::bool[], %s::text[],
                       %s::jsonb[])
                AS v (id, state, reward, reason, is_timeout, is_requeued, failure, metrics)
           WHERE s.id = v.id AND s.state = {_SESSION_OPEN} RETURNING s.id""",
        [
            list(outcomes),
            [outcome.state.value for outcome in given],
            [outcome.reward for outcome in given],
            [outcome.reason for outcome in given],
            [outcome.is_timeout for outcome in given],
            [outcome.is_requeued for outcome in given],
            [outcome.failure.value if outcome.state is SessionState.FAILED else "" for outcome in given],
            [Jsonb(outcome.metrics or {}) for outcome in given],
        ],
    )
    return {row[0] for row in await cursor.fetchall()}


async def reward_note(connection: Connection, session_id: UUID, reward: float, *, ttl_s: float) -> bool:
    """Record the latest reward of an open session and postpone its expiry. Returns False if the session is over."""
    cursor = await connection.execute(
        """UPDATE trajectory_session SET reward = %s, expires_at = now() + make_interval(secs => %s)
           WHERE id = %s AND state = %s""",
        [reward, ttl_s, session_id, SessionState.OPEN.value],
    )
    return cursor.rowcount == 1
