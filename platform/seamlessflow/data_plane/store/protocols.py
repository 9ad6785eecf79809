"""What rooms ask of the store wherever a twin in memory can answer as well as PostgreSQL.

Each protocol has both implementations, and one contract suite (`tests/contract/data_plane`) holds them to the same
behaviour. Where SQL is the logic (leases, locks, admission) there is no protocol.
"""

import datetime
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup
from seamlessflow.data_plane.store.groups.epochs import Epoch, StageChange, StageRequest
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeRow, SessionKey
from seamlessflow.data_plane.store.turns.sessions import StoredSession


class TurnStore(Protocol):
    """Sessions with their recorded turns: read back when one speaks again, added to when a turn ends."""

    async def job(self, job_id: UUID) -> JobRow | None:
        """None if there is no such job."""
        ...

    async def session(self, session_id: UUID) -> StoredSession | None:
        """With all its nodes; None if there is no such session."""
        ...

    async def nodes(self, key: SessionKey) -> list[NodeRow]:
        """All nodes of a session, in order of their index."""
        ...

    async def commit(self, rows: Sequence[NodeRow]) -> None:
        """Return when these rows, all of one turn, are durable. Raises TurnRefused if one of them is there already."""
        ...


class DatasetStore(Protocol):
    """What a job that trains on an offline dataset reads: groups that were fixed at submission, and their sessions."""

    async def groups(self, job_id: UUID, positions: Sequence[int]) -> list[DatasetGroup]:
        """In the order asked for; fewer where their source was deleted since."""
        ...

    async def sessions(self, groups: Sequence[DatasetGroup]) -> list[list[FinishedSession]]:
        """Of each group those of its chosen sessions that still have an outcome, in a fixed order."""
        ...


class EpochStore(Protocol):
    """The epochs of one job, and the facts that stages and history resampling decide on."""

    async def newest(self) -> Epoch | None:
        """Return the newest epoch; None before the first."""
        ...

    async def insert(self, epoch: Epoch, *, reason: str, change: StageChange | None = None) -> None:
        """Store the epoch that follows the newest; a `change` says that it is the first of another stage."""
        ...

    async def stage_began_at(self, stage: int) -> datetime.datetime | None:
        """Return when the job's present stay in that stage began; None if its newest epoch is of another stage."""
        ...

    async def stage_request(self) -> StageRequest:
        """Return the stage that a person requested last."""
        ...

    async def num_updates_published(self) -> int:
        """Return the number of training steps whose weights are published."""
        ...

    async def metric_recent(self, name: str, *, window: int, since: datetime.datetime) -> list[float]:
        """Return the newest `window` values of a published metric since a moment, the newest first."""
        ...

    async def lowest_rewards(self, *, since: datetime.datetime | None) -> dict[int, float]:
        """Return each task's lowest reward in its newest finalized group begun since a moment; empty for None."""
        ...
