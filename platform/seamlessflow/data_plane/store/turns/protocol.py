"""The store of turns as sessions in memory use it. PostgreSQL implements it, and a twin in memory does in tests.

One contract suite (`tests/contract/data_plane`) tests that both behave the same.
"""

from collections.abc import Awaitable, Sequence
from typing import Protocol
from uuid import UUID

from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey
from seamlessflow.data_plane.store.turns.node_texts import NodeText
from seamlessflow.data_plane.store.turns.sessions import StoredAttempt, StoredSession


class TurnRefused(Exception):
    """The turn may not be stored: its session is over, or another gateway writes it now."""


class TurnStore(Protocol):
    """Sessions with their recorded turns: read when a session comes back to memory, extended when a turn ends."""

    async def job(self, job_id: UUID) -> JobRow | None:
        """Return the job; None if there is no such job."""
        ...

    async def session(self, session_id: UUID) -> StoredSession | None:
        """Return the session with all its nodes; None if there is no such session."""
        ...

    async def nodes(self, key: SessionKey) -> list[NodeRow]:
        """Return all nodes of a session, in order of their index."""
        ...

    async def earlier(self, key: SessionKey) -> StoredAttempt | None:
        """Return the failed attempt of its slot that a session resumes; None if there is none."""
        ...

    async def texts(self, key: SessionKey) -> list[NodeText]:
        """Return the messages of each node of a session, in order of their index."""
        ...

    def commit(self, rows: Sequence[NodeRow]) -> Awaitable[None]:
        """Wait until these rows, all of one turn, are durable. Raises TurnRefused if one of them is stored already."""
        ...
