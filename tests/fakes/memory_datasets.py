"""The in-memory twin of `store/batches/datasets`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup


@dataclass(slots=True)
class MemoryDatasets:
    """A `DatasetStore`. `outcomes` has the sessions with an outcome, in the order of their slots."""

    positions: dict[tuple[UUID, int], DatasetGroup] = field(default_factory=dict)
    outcomes: dict[UUID, FinishedSession] = field(default_factory=dict)

    async def groups(self, job_id: UUID, positions: Sequence[int]) -> list[DatasetGroup]:
        found = (self.positions.get((job_id, position)) for position in positions)
        return [group for group in found if group is not None]

    async def sessions(self, groups: Sequence[DatasetGroup]) -> list[list[FinishedSession]]:
        return [
            [one for session_id, one in self.outcomes.items() if session_id in group.session_ids]
            for group in groups
        ]
