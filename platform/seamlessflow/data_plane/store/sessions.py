"""Session rows: read to bring a session back to life, moved to their verdict by compare-and-set."""

import datetime
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from seamlessflow.core.lifecycle.groups import SESSION_MOVES, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection


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
    evaluation_version: int | None = None  # of its group


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    """How a session ends. Without a reward it failed, for `reason`; handed back, that was no fault of its task."""

    reward: float | None
    reason: str = ""
    is_timeout: bool = False
    is_handed_back: bool = False
    metrics: dict[str, float] | None = None

    @property
    def state(self) -> SessionState:
        return SessionState.FAILED if self.reward is None else SessionState.CLOSED


async def session_read(connection: Connection, session_id: UUID) -> SessionRow | None:
    cursor = await connection.execute(
        """SELECT s.id, s.project_id, s.job_id, s.group_id, s.month, s.state, s.key_digest, s.reward,
                  g.evaluation_version
           FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id WHERE s.id = %s""",
        [session_id],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    session, project, job, group, month, state, digest, reward, evaluation = row
    return SessionRow(
        session, project, job, group, month, SessionState(state), bytes(digest), reward, evaluation
    )


async def session_end(connection: Connection, session_id: UUID, verdict: SessionVerdict) -> bool:
    """Give an open session its verdict. False when it had ended before."""
    SESSION_MOVES.check(SessionState.OPEN, verdict.state)
    cursor = await connection.execute(
        """UPDATE trajectory_session
           SET state = %s, reward = %s, reason = %s, is_timeout = %s, is_handed_back = %s, metrics = metrics || %s,
               closed_at = now()
           WHERE id = %s AND state = 'open'""",
        [
            verdict.state.value, verdict.reward, verdict.reason, verdict.is_timeout, verdict.is_handed_back,
            Jsonb(verdict.metrics or {}),
            session_id,
        ],
    )  # fmt: skip
    return cursor.rowcount == 1


async def reward_store(
    connection: Connection, session: SessionRow, reward: float, *, metrics: dict[str, Any]
) -> None:
    """Note a reward. One that comes after its group was settled is marked late: stored, not trained."""
    await connection.execute(
        """UPDATE trajectory_session s SET reward = coalesce(%s, s.reward), metrics = s.metrics || %s,
                  is_late = s.is_late OR g.state <> %s
           FROM trajectory_group g WHERE g.id = s.group_id AND s.id = %s""",
        [None if metrics else reward, Jsonb(metrics), GroupState.OPEN.value, session.session_id],
    )
