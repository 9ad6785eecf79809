"""The groups whose forests somebody is watching, as the broker last reported them.

The list is at most one poll of the progress feed old.
"""

from collections.abc import Mapping
from uuid import UUID


class Watched:
    """The progress feed sets it; turns read it."""

    def __init__(self) -> None:
        self._asked: Mapping[UUID, int] = {}

    @property
    def groups(self) -> Mapping[UUID, int]:
        """Return how many snapshots of each were given: when the number rises, somebody lacks the growing answers."""
        return self._asked

    def set(self, asked: Mapping[UUID, int]) -> None:
        self._asked = asked

    def is_watched(self, group_id: UUID) -> bool:
        return group_id in self._asked
