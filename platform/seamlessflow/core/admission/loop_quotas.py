"""How much of an event loop's time each job may use while others use it too.

Takes when requests of jobs begin, how long their steps kept the loop, and the time; returns whether a job may begin
another request now. Each job may always use an equal quota of the loop's time. It may use more while the loop has time
to spare, so that requests of the other jobs find it free. A job that asks for more than its bounds allow has a smaller
quota. Invariant: a job that is alone always may, and so may one that has not had its quota lately.
"""

from dataclasses import dataclass, field
from uuid import UUID

# Of the loop's time. The steps that are measured are about three quarters of what requests cost it.
JOBS_FRACTION = 0.7  # divided by the number of jobs
REFUSED_FACTOR = 0.5  # of its quota, for a job of which requests were refused lately
SPARE_FRACTION = 0.45  # above that much use by all jobs, the loop has no time to spare
JOBS_BURST_S = 0.05  # how much of its quota a job may use at once
SPARE_BURST_S = 0.002
MAX_DEBT_S = 0.15  # so that a job that was alone does not pay long for it when others come
ACTIVE_S = 2.0  # how long a job counts after its last request
FIRST_GUESS_S = 0.002
NEWEST_WEIGHT = 0.1
SMALLEST_STEP_S = 0.0005


@dataclass(slots=True)
class _Job:
    seen_s: float = 0.0
    refused_s: float = -ACTIVE_S  # when a request was refused last
    debt_s: float = 0.0  # the time that it used beyond its quota
    request_s: float = FIRST_GUESS_S  # what its requests use, on average


@dataclass(slots=True)
class LoopQuotas:
    """The debts of jobs, and of all together, which shrink as time passes."""

    _jobs: dict[UUID, _Job] = field(default_factory=dict)
    _debt_s: float = 0.0
    _now_s: float = 0.0

    def may_begin(self, job_id: UUID, now_s: float) -> bool:
        if now_s - self._now_s >= SMALLEST_STEP_S:
            self._pass(now_s)
        job = self._job(job_id)
        return len(self._jobs) == 1 or job.debt_s <= JOBS_BURST_S or self._debt_s <= SPARE_BURST_S

    def begin(self, job_id: UUID) -> "RequestUse":
        """Charge what a request of the job will probably use, so that not too many begin before that shows."""
        expected_s = self._job(job_id).request_s
        self._charge(job_id, expected_s)
        return RequestUse(self, job_id, expected_s)

    def refused(self, job_id: UUID) -> None:
        self._job(job_id).refused_s = self._now_s

    def _job(self, job_id: UUID) -> _Job:
        job = self._jobs.setdefault(job_id, _Job())
        job.seen_s = self._now_s
        return job

    def _charge(self, job_id: UUID, used_s: float) -> None:
        job = self._job(job_id)
        job.debt_s = min(MAX_DEBT_S, max(0.0, job.debt_s + used_s))
        self._debt_s = min(MAX_DEBT_S, max(0.0, self._debt_s + used_s))

    def _end(self, job_id: UUID, used_s: float) -> None:
        job = self._job(job_id)
        job.request_s += NEWEST_WEIGHT * (used_s - job.request_s)

    def _pass(self, now_s: float) -> None:
        passed_s, self._now_s = now_s - self._now_s, now_s
        for job_id in [job_id for job_id, job in self._jobs.items() if now_s - job.seen_s > ACTIVE_S]:
            del self._jobs[job_id]
        quota = JOBS_FRACTION / max(1, len(self._jobs))
        for job in self._jobs.values():
            is_refused = now_s - job.refused_s < ACTIVE_S
            job.debt_s = max(0.0, job.debt_s - passed_s * quota * (REFUSED_FACTOR if is_refused else 1))
        self._debt_s = max(0.0, self._debt_s - passed_s * SPARE_FRACTION)


@dataclass(slots=True)
class RequestUse:
    """What one request uses."""

    _quotas: LoopQuotas
    _job_id: UUID
    _prepaid_s: float
    _used_s: float = 0.0

    def add(self, used_s: float) -> None:
        self._used_s += used_s
        self._prepaid_s -= used_s
        if self._prepaid_s < 0:
            self._quotas._charge(self._job_id, -self._prepaid_s)
            self._prepaid_s = 0.0

    def end(self) -> None:
        """Give back the charged time that was not used, and learn from it."""
        self._quotas._charge(self._job_id, -self._prepaid_s)
        self._quotas._end(self._job_id, self._used_s)
