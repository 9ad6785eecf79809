"""The in-memory twin of `store/groups/epochs`.

Tests set its fields to what others write to PostgreSQL: people's requests, published metrics, finalized groups.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.data_plane.store.groups.epochs import Epoch, StageChange, StageRequest


@dataclass(frozen=True, slots=True)
class FinalizedGroup:
    """A training group with at least one outcome."""

    task_index: int
    index: int
    created_at: datetime.datetime
    lowest_reward: float


@dataclass(frozen=True, slots=True)
class MetricPoint:
    name: str
    step: int
    value: float
    at: datetime.datetime


@dataclass(slots=True)
class MemoryEpochs:
    """An `EpochStore`. `now` gives the moment at which an epoch is inserted."""

    now: Callable[[], datetime.datetime]
    epochs: list[tuple[Epoch, datetime.datetime]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    changes: list[StageChange] = field(default_factory=list)
    request: StageRequest = field(default_factory=lambda: StageRequest(0, None))
    num_updates: int = 0
    points: list[MetricPoint] = field(default_factory=list)
    groups: list[FinalizedGroup] = field(default_factory=list)

    async def newest(self) -> Epoch | None:
        return self.epochs[-1][0] if self.epochs else None

    async def insert(self, epoch: Epoch, *, reason: str, change: StageChange | None = None) -> None:
        self.epochs.append((epoch, self.now()))
        self.reasons.append(reason)
        if change is not None:
            self.changes.append(change)

    async def stage_began_at(self, stage: int) -> datetime.datetime | None:
        began_at = None
        for epoch, created_at in reversed(self.epochs):
            if epoch.stage != stage:
                break
            began_at = created_at
        return began_at

    async def stage_request(self) -> StageRequest:
        return self.request

    async def num_updates_published(self) -> int:
        return self.num_updates

    async def metric_recent(self, name: str, *, window: int, since: datetime.datetime) -> list[float]:
        found = [point for point in self.points if point.name == name and point.at >= since]
        return [point.value for point in sorted(found, key=lambda point: -point.step)[:window]]

    async def lowest_rewards(self, *, since: datetime.datetime | None) -> dict[int, float]:
        if since is None:
            return {}
        begun = [group for group in self.groups if group.created_at >= since]
        return {
            group.task_index: group.lowest_reward for group in sorted(begun, key=lambda group: group.index)
        }
