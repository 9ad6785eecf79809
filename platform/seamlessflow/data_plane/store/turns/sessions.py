"""Session rows: read back with their sessions, found by the request that opened them, moved to their outcomes."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.environment.failures import UNCHARGED, FailureKind
from seamlessflow.core.lifecycle.groups import SESSION_MOVES, SessionState
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, SessionState)


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
    rows = await named_rows(connection, SQL["sessions"], {"sessions": list(session_ids)})
    return {row.session_id: SessionRow(**row._asdict() | {"state": SessionState(row.state)}) for row in rows}


async def session_read(connection: Connection, session_id: UUID) -> SessionRow | None:
    return (await sessions_read(connection, [session_id])).get(session_id)


async def earlier_attempts(connection: Connection, session_id: UUID) -> list[EarlierAttempt]:
    """Read the failed attempts of a session's slot before it, oldest first."""
    rows = await named_rows(connection, SQL["earlier"], {"session": session_id})
    return [EarlierAttempt(**row._asdict()) for row in rows]


async def session_lock(connection: Connection, session_id: UUID) -> SessionRow:
    """Lock an existing session until the transaction ends, and return its current row."""
    await connection.execute("SELECT 1 FROM trajectory_session WHERE id = %s FOR UPDATE", [session_id])
    row = await session_read(connection, session_id)
    assert row is not None
    return row


async def opening_read(connection: Connection, project_id: UUID, key: str) -> Opening | None:
    """Return the session that a request with this Idempotency-Key opened in the project; None if there is none."""
    rows = await named_rows(connection, SQL["opening"], {"project": project_id, "key": key})
    return Opening(**rows[0]._asdict()) if rows else None


async def opening_store(
    connection: Connection, session_id: UUID, *, key: str | None, digest: bytes, ttl_s: float
) -> datetime.datetime:
    """Record which request opened a session. Returns when it expires. Raises UniqueViolation if the key is taken."""
    values = {"key": key, "digest": None if key is None else digest, "ttl_s": ttl_s, "session": session_id}
    (row,) = await named_rows(connection, SQL["store_opening"], values)
    expires_at: datetime.datetime = row.expires_at
    return expires_at


async def sessions_end(connection: Connection, outcomes: Mapping[UUID, SessionOutcome]) -> set[UUID]:
    """Give open sessions their outcomes. Returns the sessions that had not ended before."""
    for outcome in outcomes.values():
        SESSION_MOVES.check(SessionState.OPEN, outcome.state)
    ends = outcomes.values()
    values = {
        "sessions": list(outcomes),
        "states": [end.state.value for end in ends],
        "rewards": [end.reward for end in ends],
        "reasons": [end.reason for end in ends],
        "are_timeouts": [end.is_timeout for end in ends],
        "are_requeued": [end.is_requeued for end in ends],
        "failures": [end.failure.value if end.state is SessionState.FAILED else "" for end in ends],
        "metrics": [Jsonb(end.metrics or {}) for end in ends],
    }
    return {row.id for row in await named_rows(connection, SQL["end"], values)}


async def reward_note(connection: Connection, session_id: UUID, reward: float, *, ttl_s: float) -> bool:
    """Record the latest reward of an open session and postpone its expiry. Returns False if the session is over."""
    values = {"reward": reward, "ttl_s": ttl_s, "session": session_id}
    cursor = await connection.execute(SQL["note_reward"], values)
    return cursor.rowcount == 1
