"""Decides which job's work a helper does next: jobs take turns, and slow jobs never occupy all helpers at once.

This is pure bookkeeping: `put` adds work under its job's key, `take` returns the next work, and `done` gives its place
back. A job that kept a helper busy for long is a suspect for a while; all suspects together leave one helper to the
others.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from seamlessflow.core.admission.fair_queue import is_full_for

Work = TypeVar("Work")
SUSPECT_S = 60.0


class WaitingLine(Generic[Work]):
    def __init__(self, *, num_helpers: int) -> None:
        self._num_helpers = num_helpers
        self._waiting: OrderedDict[Hashable, deque[Work]] = OrderedDict()
        self._at_work: Counter[Hashable] = Counter()
        self._suspect_until_s: dict[Hashable, float] = {}
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def is_full(self, job: Hashable, limit: int) -> bool:
        """Return whether a job may have no more work waiting."""
        num_of_job = len(self._waiting.get(job, ()))
        num_jobs = len(self._waiting) + (job not in self._waiting)
        return is_full_for(
            num_of_job=num_of_job, num_in_all=self._num_waiting, num_jobs=num_jobs, limit=limit
        )

    def put(self, job: Hashable, work: Work, *, is_first: bool = False) -> None:
        line = self._waiting.setdefault(job, deque())
        if is_first:
            line.appendleft(work)
        else:
            line.append(work)
        self._num_waiting += 1

    def take(self, now_s: float, *, has_suspects: bool = True) -> tuple[Hashable, Work] | None:
        """Return the next work that may begin now, with its job; None if there is none.

        has_suspects: the helper has nothing else to do, so a suspect's work keeps no other waiting.
        """
        for job in self._waiting:
            if (has_suspects or not self.is_suspect(job, now_s)) and self._may_begin(job, now_s):
                break
        else:
            return None
        line = self._waiting[job]
        work = line.popleft()
        self._num_waiting -= 1
        if line:
            self._waiting.move_to_end(job)
        else:
            del self._waiting[job]
        self._at_work[job] += 1
        return job, work

    def done(self, job: Hashable) -> None:
        self._at_work[job] -= 1
        if not self._at_work[job]:
            del self._at_work[job]

    def suspect(self, job: Hashable, now_s: float) -> None:
        self._suspect_until_s[job] = now_s + SUSPECT_S

    def _may_begin(self, job: Hashable, now_s: float) -> bool:
        if not self.is_suspect(job, now_s):
            return True
        num_busy = sum(self._at_work[other] for other in list(self._suspect_until_s))
        return num_busy < max(1, self._num_helpers - 1)

    def is_suspect(self, job: Hashable, now_s: float) -> bool:
        until_s = self._suspect_until_s.get(job)
        if until_s is not None and until_s <= now_s:
            del self._suspect_until_s[job]
            return False
        return until_s is not None
