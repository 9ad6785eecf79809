"""Which jobs are owed a machine, because others had more than their parts for a while.

Machines are whole, a step cannot be divided, and a job may have an engine for itself where others train, so a moment's
shares are never exact. Takes what jobs hold and could use, cycle by cycle, and adds up the difference to what each
would hold if machines could be divided: what jobs of one priority hold together, by weight among projects and then
their jobs, capped by what each could use. A job that lacks more than a limit is owed a machine until it has caught up,
and one that exceeded its part by as much owes one.

Example: three equal jobs hold 3, 3 and 2 machines, so their parts are 2.67. After 7.5 s the third lacks five seconds of
a machine. It is owed one, holds three of them for 15 s, and then is owed nothing.

Invariants: differences sum to zero, so nobody owes what no other job lacked; machines that nobody else could use cost
nothing; a job never lacks or owes more than twice its limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.scheduling.dividing import divided
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot

LEAST_LIMIT_S = 5.0  # of a machine
LIMIT_HAND_OVERS = 10.0  # a machine that changes hands this seldom costs little
MOST_LIMITS = 2.0  # what is beyond is forgotten
NO_DIFFERENCE = 0.001  # machines; smaller ones come from rounding


@dataclass(frozen=True, slots=True)
class Claim:
    """What an admitted job holds and could use, engines and trainers, in usual machines: one that costs twice as much
    as machines do on average counts as two."""

    job: JobView
    wanted: float
    held: float


def differences(claims: Iterable[Claim]) -> dict[UUID, float]:
    """Return how many machines each job has less than its part; below zero: more. Jobs without a difference are left
    out."""
    by_priority: dict[int, list[Claim]] = defaultdict(list)
    for one in claims:
        by_priority[one.job.priority].append(one)
    return {job_id: num for equals in by_priority.values() for job_id, num in _differences(equals).items()}


def _differences(claims: list[Claim]) -> dict[UUID, float]:
    parts = _parts(claims)
    lacking = {one.job.id: parts[one.job.id] - one.held for one in claims}
    lacked = sum(max(num, 0.0) for num in lacking.values())
    exceeded = sum(max(-num, 0.0) for num in lacking.values())
    if lacked < NO_DIFFERENCE:
        return {}
    used = lacked / exceeded  # the rest is spare: nobody else could use it
    scaled = {job_id: num if num > 0 else num * used for job_id, num in lacking.items()}
    return {job_id: num for job_id, num in scaled.items() if abs(num) >= NO_DIFFERENCE}


def _parts(claims: list[Claim]) -> dict[UUID, float]:
    """Divide what jobs hold together among their projects, and what each gets among its jobs."""
    of_project: dict[UUID, list[Claim]] = defaultdict(list)
    for one in claims:
        of_project[one.job.project_id].append(one)
    weights = {project: own[0].job.project_weight for project, own in of_project.items()}
    caps = {project: _cap(own) for project, own in of_project.items()}
    parts: dict[UUID, float] = {}
    amount = sum(one.held for one in claims)
    for project, part in divided(amount, weights, caps).items():
        own = of_project[project]
        wanted = {one.job.id: one.wanted for one in own}
        parts |= divided(part, {one.job.id: one.job.weight for one in own}, wanted)
    return parts


def _cap(claims: list[Claim]) -> float:
    wanted, quota = sum(one.wanted for one in claims), claims[0].job.project_quota
    held = sum(one.held for one in claims)  # what it has already is within its quota, whatever it costs
    return wanted if quota is None else min(wanted, max(float(quota), held))


@dataclass(slots=True)
class Arrears:
    """Adds differences up, by job. `pass_time` says which jobs are owed a machine (1), owe one (-1) or neither (0)."""

    _lacking_s: dict[UUID, float] = field(default_factory=dict)

    def pass_time(
        self, snapshot: Snapshot, differing: Mapping[UUID, float], elapsed_s: float
    ) -> dict[UUID, int]:
        """Let time pass in which these differences held. Returns what changes, by job, against the snapshot."""
        jobs = {job.id: job for job in snapshot.jobs}
        self._lacking_s = {job_id: s for job_id, s in self._lacking_s.items() if job_id in jobs}
        changed: dict[UUID, int] = {}
        for job_id in jobs.keys() & (differing.keys() | self._lacking_s.keys()):
            job, most_s = jobs[job_id], MOST_LIMITS * limit_s(jobs[job_id])
            # After a restart, a job that is owed a machine has just begun to be.
            before_s = self._lacking_s.get(job_id, job.owed * limit_s(job))
            now_s = before_s + differing.get(job_id, 0.0) * elapsed_s
            self._lacking_s[job_id] = min(max(now_s, -most_s), most_s)
            if (owed := _owed(job, self._lacking_s[job_id])) != job.owed:
                changed[job_id] = owed
        return changed


def limit_s(job: JobView) -> float:
    """Return how many seconds of a machine the job may lack or exceed before one changes hands for that."""
    return max(LEAST_LIMIT_S, LIMIT_HAND_OVERS * job.hand_over_s)


def _owed(job: JobView, lacking_s: float) -> int:
    """What is owed stays owed until the job has caught up, so that machines do not change hands all the time."""
    for owed in (1, -1):
        if owed * lacking_s >= limit_s(job) or (job.owed == owed and owed * lacking_s > 0):
            return owed
    return 0
