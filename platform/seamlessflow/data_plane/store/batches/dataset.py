"""A recorded group of an offline dataset, as a value."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DatasetGroup:
    group_id: UUID
    session_ids: tuple[UUID, ...]  # those that are trained
