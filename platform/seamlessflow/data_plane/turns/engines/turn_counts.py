"""How many turns of each job run at engines or wait for one, for the scheduler to give the job as many engines.

A sign of life tells the most there were since the last one, because turns come and go within milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class TurnCounts:
    _now: dict[UUID, int] = field(default_factory=dict)
    _most: dict[UUID, int] = field(default_factory=dict)

    def begin(self, job_id: UUID) -> None:
        num = self._now[job_id] = self._now.get(job_id, 0) + 1
        if num > self._most.get(job_id, 0):
            self._most[job_id] = num

    def end(self, job_id: UUID) -> None:
        self._now[job_id] -= 1
        if not self._now[job_id]:
            del self._now[job_id]

    def most_taken(self) -> Mapping[UUID, int]:
        """Return the most turns of each job at one time since the last call."""
        most, self._most = self._most, dict(self._now)
        return most
