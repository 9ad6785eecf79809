"""What rooms ask of the store, where a twin in memory can answer as well as PostgreSQL does.

Each protocol has both implementations, and one contract suite (`tests/contract/data_plane`) holds them to the same
behaviour. Where SQL is the logic (leases, locks, admission) there is no protocol.
"""

import datetime
from typing import Protocol

from seamlessflow.data_plane.store.groups.epoch import Epoch, StageChange, StageRequest


class EpochStore(Protocol):
    """The epochs of one job, and the facts that stages and history resampling decide on."""

    async def newest(self) -> Epoch | None:
        """None before the first."""
        ...

    async def insert(self, epoch: Epoch, *, reason: str, change: StageChange | None = None) -> None:
        """Store the epoch that follows the newest; `change`: it is the first of another stage."""
        ...

    async def stage_began_at(self, stage: int) -> datetime.datetime | None:
        """When the job's present stay in that stage began; None if its newest epoch is of another stage."""
        ...

    async def stage_request(self) -> StageRequest:
        """What a person asked for last."""
        ...

    async def num_updates_published(self) -> int:
        """Training steps whose weights are published."""
        ...

    async def metric_recent(self, name: str, *, window: int, since: datetime.datetime) -> list[float]:
        """The newest `window` values of a published metric since a moment, the newest first."""
        ...

    async def lowest_rewards(self, *, since: datetime.datetime | None) -> dict[int, float]:
        """Lowest reward of the newest finalized group of each task, of groups begun since a moment; empty for None."""
        ...
