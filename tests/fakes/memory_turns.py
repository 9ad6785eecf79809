"""The in-memory twin of `store/turns/turn_store`: turns last as long as the process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.environment.resuming import attempt_to_resume, attempts_resumable
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, NodeRow, SessionKey, node_flags
from seamlessflow.data_plane.store.turns.node_texts import NodeText
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.store.turns.sessions import (
    EarlierAttempt,
    SessionRow,
    StoredAttempt,
    StoredSession,
)


@dataclass(slots=True)
class MemoryTurns:
    """A `TurnStore`. Tests put jobs and sessions into `jobs` and `sessions`, and into `attempts` those before one."""

    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    sessions: dict[UUID, SessionRow] = field(default_factory=dict)
    attempts: dict[UUID, list[EarlierAttempt]] = field(default_factory=dict)
    rows: dict[UUID, dict[int, NodeRow]] = field(default_factory=dict)

    async def job(self, job_id: UUID) -> JobRow | None:
        return self.jobs.get(job_id)

    async def session(self, session_id: UUID) -> StoredSession | None:
        row = self.sessions.get(session_id)
        return None if row is None else StoredSession(row, self._nodes(session_id))

    async def nodes(self, key: SessionKey) -> list[NodeRow]:
        return self._nodes(key.session_id)

    async def earlier(self, key: SessionKey) -> StoredAttempt | None:
        attempts = self.attempts.get(key.session_id, [])
        found = attempt_to_resume(attempts)
        failed = [attempt.session_id for attempt in attempts_resumable(attempts)]
        return (
            None if found is None else StoredAttempt(found.session_id, self._nodes(found.session_id), failed)
        )

    async def texts(self, key: SessionKey) -> list[NodeText]:
        return [_text(row) for row in self._nodes(key.session_id)]

    async def commit(self, rows: Sequence[NodeRow]) -> None:
        for row in rows:
            session = self.sessions[row.key.session_id]
            if session.state is not SessionState.OPEN or (session.gateway_epoch or 0) != row.key.epoch:
                raise TurnRefused("its session is over, or another gateway writes it now")
            if row.node.index in self.rows.get(row.key.session_id, {}):
                raise TurnRefused(f"node {row.node.index} of session {row.key.session_id} is stored already")
        for row in rows:
            self.rows.setdefault(row.key.session_id, {})[row.node.index] = _as_read(row)

    def _nodes(self, session_id: UUID) -> list[NodeRow]:
        stored = self.rows.get(session_id, {})
        return [stored[index] for index in sorted(stored)]


def _text(row: NodeRow) -> NodeText:
    node, facts = row.node, row.facts
    return NodeText(
        node.index,
        node.parent,
        node.kind,
        facts.turn_id,
        facts.messages,
        facts.finish_reason,
        node.is_partial,
        facts.flags,
    )


def _as_read(row: NodeRow) -> NodeRow:
    """Return the row as PostgreSQL returns it: only with what a tree is rebuilt from."""
    facts = row.facts
    kept = NodeFacts(
        messages=facts.messages,
        turn_id=facts.turn_id,
        finish_reason=facts.finish_reason,
        request_digest=facts.request_digest,
        flags=node_flags(row),
    )
    return NodeRow(row.key, row.node, kept)
