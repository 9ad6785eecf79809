"""The store as batches and the choice of tasks use it. For turns, see `store/turns/protocol`.

Each protocol has two implementations, PostgreSQL and a twin in memory for tests. One contract suite
(`tests/contract/data_plane`) tests that they behave the same. Where the logic is in SQL (leases, locks, admission),
there is no protocol.
"""

import datetime
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup
from seamlessflow.data_plane.store.groups.epochs import Epoch, StageChange, StageRequest


class DatasetStore(Protocol):
    """The offline dataset of a job: its groups, which were fixed at submission, and their sessions."""

    async def groups(self, job_id: UUID, positions: Sequence[int]) -> list[DatasetGroup]:
        """Return the groups at these positions, in this order, without those that were deleted since."""
        ...

    async def sessions(self, groups: Sequence[DatasetGroup]) -> list[list[FinishedSession]]:
        """Return for each group its chosen sessions that still exist and have an outcome, in a fixed order."""
        ...


class EpochStore(Protocol):
    """The epochs of one job, and the facts that stages and history resampling decide on."""

    async def newest(self) -> Epoch | None:
        """Return the newest epoch; None before the first."""
        ...

    async def insert(self, epoch: Epoch, *, reason: str, change: StageChange | None = None) -> None:
        """Store the epoch that follows the newest. Pass `change` if it is the first epoch of another stage."""
        ...

    async def stage_began_at(self, stage: int) -> datetime.datetime | None:
        """Return when the job entered that stage; None if its newest epoch belongs to another stage."""
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
        """Return, by task, the lowest reward in its newest finalized group that began since a moment; {} for None."""
        ...
