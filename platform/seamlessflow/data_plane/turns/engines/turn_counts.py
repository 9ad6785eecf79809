"""How many turns of each job are decoded or wait for an engine, for the scheduler to give the job as many engines.

A turn that queues at an engine is not counted, because it needs no other engine. Turns come and go within milliseconds,
so the most in this period and the one before counts. `reported` is in this gateway's row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class TurnCounts:
    _now: dict[UUID, int] = field(default_factory=dict)
    _most: dict[UUID, int] = field(default_factory=dict)  # in this period
    _before: dict[UUID, int] = field(default_factory=dict)  # in the one before
    reported: Mapping[UUID, int] = field(default_factory=dict)

    def begin(self, job_id: UUID) -> None:
        num = self._now[job_id] = self._now.get(job_id, 0) + 1
        if num > self._most.get(job_id, 0):
            self._most[job_id] = num

    def end(self, job_id: UUID) -> None:
        self._now[job_id] -= 1
        if not self._now[job_id]:
            del self._now[job_id]

    def num_now(self) -> int:
        return sum(self._now.values())

    def most_lately(self) -> Mapping[UUID, int]:
        """Return the most turns of each job at one time, in this period and the one before."""
        return {
            job_id: max(self._most.get(job_id, 0), self._before.get(job_id, 0))
            for job_id in self._most.keys() | self._before.keys()
        }

    def report(self) -> Mapping[UUID, int]:
        """Return the same for a sign of life, which writes it to the row."""
        self.reported = self.most_lately()
        return self.reported

    def period_end(self) -> None:
        self._before, self._most = self._most, dict(self._now)
