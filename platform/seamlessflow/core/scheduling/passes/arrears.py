"""Which jobs are owed a machine, because others had more than their entitlements for a while.

Machines are whole, a step cannot be divided, and a job may have an engine for itself where others train, so a moment's
shares are never exact. Takes what jobs hold and could use, cycle by cycle, and adds up the difference to what each
would hold if machines could be divided: what jobs of one priority hold together, by weight among projects and then
their jobs, capped by what each could use and by the machines that each may use (`dividing`). A job that lacks more than
a limit is owed a machine until it has caught up, and one that exceeded its entitlement by as much owes one.

Example: three equal jobs hold 3, 3 and 2 machines, so their entitlements are 2.67. After 7.5 s the third lacks five
seconds of a machine. It is owed one, holds three of them for 15 s, and then is owed nothing.

Invariants: differences sum to zero, so no job owes more than others lacked; machines that no other job could use cost
nothing; a job never lacks or owes more than twice its limit.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.passes.dividing import Division, Use
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot

LEAST_LIMIT_S = 5.0  # of a machine
LIMIT_HAND_OVERS = 10.0  # a machine that changes hands this seldom costs little
MOST_LIMITS = 2.0  # any excess is forgotten
FLOOR = 1.0  # machine that a job at work has before those of its project that wait
# A job that begins loads a model, so a floor changes hands for a project that is owed one more seldom than an engine.
FLOOR_LIMITS = 6.0
NO_DIFFERENCE = 0.001  # machines; smaller ones come from rounding


@dataclass(frozen=True, slots=True)
class Claim:
    """What an admitted job holds and could use, engines and trainers, in usual machines: one that costs twice as much
    as machines do on average counts as two. `held_in`: what it holds by class; `reach`: the classes that it may use."""

    job: JobView
    wanted: float
    held_in: Mapping[int, float]
    reach: frozenset[int]
    is_waiting: bool = False  # it waits for its floor, which is all that it could use

    @property
    def held(self) -> float:
        return sum(self.held_in.values())

    def use(self, most: float) -> tuple[Use]:
        return (Use(self.reach.union(self.held_in), most),)


def differences(claims: Iterable[Claim]) -> dict[UUID, float]:
    """Return how many machines each job has less than its entitlement; below zero: more. Jobs without a difference are
    left out."""
    by_priority: dict[int, list[Claim]] = defaultdict(list)
    for one in claims:
        by_priority[one.job.fleet_priority].append(one)
    return {job_id: num for equals in by_priority.values() for job_id, num in _differences(equals).items()}


def _differences(claims: list[Claim]) -> dict[UUID, float]:
    entitlements = _entitlements(claims)
    lacking = {one.job.id: entitlements[one.job.id] - one.held for one in claims}
    contended = _contended(claims, lacking)
    for one in claims:
        if lacking[one.job.id] < 0 and contended.isdisjoint(one.held_in):
            lacking[one.job.id] = 0.0
    lacked = sum(max(num, 0.0) for num in lacking.values())
    exceeded = sum(max(-num, 0.0) for num in lacking.values())
    if min(lacked, exceeded) < NO_DIFFERENCE:
        return {}
    used = lacked / exceeded  # the rest is spare: no other job could use it
    scaled = {job_id: num if num > 0 else num * used for job_id, num in lacking.items()}
    return {job_id: num for job_id, num in scaled.items() if abs(num) >= NO_DIFFERENCE}


def _contended(claims: Sequence[Claim], lacking: Mapping[UUID, float]) -> set[int]:
    """Return the classes whose machines would help a job that lacks some, if others made room there or elsewhere."""
    found = set[int]()
    for one in claims:
        if lacking[one.job.id] >= NO_DIFFERENCE:
            found |= one.reach.union(one.held_in)
    num = -1
    while num < len(found):
        num = len(found)
        for one in claims:
            if not found.isdisjoint(one.held_in):
                found |= one.reach.union(one.held_in)
    return found


def _entitlements(claims: list[Claim]) -> dict[UUID, float]:
    """Divide what jobs hold together among their projects, and what each gets among its jobs."""
    of_project: dict[UUID, list[Claim]] = defaultdict(list)
    held: dict[int, float] = defaultdict(float)
    for one in claims:
        of_project[one.job.project_id].append(one)
        for number, num in one.held_in.items():
            held[number] += num
    weights = {project: own[0].job.project_weight for project, own in of_project.items()}
    quotas = {
        # The machines that it has already are within its quota, whatever they cost.
        project: max(float(quota), sum(one.held for one in own))
        for project, own in of_project.items()
        if (quota := own[0].job.project_quota) is not None
    }
    uses = {project: _uses(own) for project, own in of_project.items()}
    machines = Division(held)
    of_projects = machines.entitlements(weights, uses, quotas)
    for project, entitlement in of_projects.items():
        machines.give(project, uses[project], entitlement)
    entitlements: dict[UUID, float] = {}
    for project, entitlement in of_projects.items():
        entitlements |= _own_entitlements(entitlement, of_project[project], machines.without(project))
    return entitlements


def _uses(claims: Sequence[Claim]) -> list[Use]:
    """Return the machines that the jobs of a project could use."""
    num: dict[frozenset[int], float] = defaultdict(float)
    for one in claims:
        (use,) = one.use(one.wanted)
        num[use.reach] += use.most
    return [Use(reach, most) for reach, most in num.items()]


def _own_entitlements(entitlement: float, claims: Sequence[Claim], machines: Division) -> dict[UUID, float]:
    """Divide what a project gets among its jobs: a floor for each that is at work, then for those that wait, then what
    is left to the highest priority, by weight. `machines`: without those of other projects."""
    at_work = [one for one in claims if not one.is_waiting]
    entitlements: dict[UUID, float] = {}
    beside_floors = machines.without(None)
    left = entitlement
    for one in at_work:
        num = min(one.wanted, FLOOR)
        beside_floors.give(one.job.id, one.use(num), num)
        left -= num
    for one in sorted((one for one in claims if one.is_waiting), key=_waiting_order):
        num = beside_floors.left_for(one.use(one.wanted), left) if left > 0 else 0.0
        entitlements[one.job.id] = num
        left -= num
        for each in (beside_floors, machines):
            each.give(one.job.id, one.use(num), num)
    left = entitlement - sum(entitlements.values())
    for priority in sorted({one.job.priority for one in at_work}, reverse=True):
        same = {one.job.id: one for one in at_work if one.job.priority == priority}
        uses = {job_id: one.use(one.wanted) for job_id, one in same.items()}
        found = machines.entitlements(
            {job_id: one.job.weight for job_id, one in same.items()}, uses, most=left
        )
        for job_id, num in found.items():
            machines.give(job_id, uses[job_id], num)
        entitlements |= found
        left -= sum(found.values())
    return entitlements


def _waiting_order(claim: Claim) -> tuple[int, float, int, UUID]:
    return (-claim.job.priority, -claim.job.waiting_s, claim.job.order, claim.job.id)


@dataclass(slots=True)
class Arrears:
    """Adds differences up, by job and by project. `pass_time` says which jobs are owed a machine (1), owe one (-1) or
    neither (0). A project that lacks more than floors change hands for is owed one of them: its first job that waits
    (1), or else the first that could use another engine (2)."""

    _lacking_s: dict[UUID, float] = field(default_factory=dict)
    _project_lacks_s: dict[UUID, float] = field(default_factory=dict)
    _owed_floors: set[UUID] = field(default_factory=set)

    def pass_time(
        self, snapshot: Snapshot, differing: Mapping[UUID, float], elapsed_s: float
    ) -> dict[UUID, int]:
        """Let time pass in which these differences held. Returns what changes, by job, against the snapshot."""
        jobs = {job.id: job for job in snapshot.jobs}
        waiting = [job for job in snapshot.jobs if job.state is JobState.QUEUED]
        changed = self._waiting_pass_time(jobs, waiting, differing, elapsed_s)
        self._lacking_s = {
            job_id: s
            for job_id, s in self._lacking_s.items()
            if job_id in jobs and jobs[job_id].state is not JobState.QUEUED
        }
        for job_id in jobs.keys() & (differing.keys() | self._lacking_s.keys()):
            job, most_s = jobs[job_id], MOST_LIMITS * limit_s(jobs[job_id])
            if job.state is JobState.QUEUED:
                continue
            # After a restart, a job that is owed a machine has just begun to be.
            before_s = self._lacking_s.get(job_id, min(job.owed, 1) * limit_s(job))
            now_s = before_s + differing.get(job_id, 0.0) * elapsed_s
            self._lacking_s[job_id] = min(max(now_s, -most_s), most_s)
            owed = 2 if job_id in self._owed_floors else _owed(job, self._lacking_s[job_id])
            if owed != job.owed:
                changed[job_id] = owed
        return changed

    def _waiting_pass_time(
        self,
        jobs: Mapping[UUID, JobView],
        waiting: Sequence[JobView],
        differing: Mapping[UUID, float],
        elapsed_s: float,
    ) -> dict[UUID, int]:
        """Add up by project, and choose the job of each project that is owed its floor."""
        sums: dict[UUID, float] = defaultdict(float)
        for job_id in jobs.keys() & differing.keys():
            sums[jobs[job_id].project_id] += differing[job_id] * elapsed_s
        limits_s: dict[UUID, float] = defaultdict(float)
        for job in jobs.values():
            limits_s[job.project_id] = max(limits_s[job.project_id], FLOOR_LIMITS * limit_s(job))
        known, self._project_lacks_s = self._project_lacks_s, {}
        for project in limits_s.keys() & (sums.keys() | known.keys()):
            most_s = MOST_LIMITS * limits_s[project]
            was_owed = any(job.is_owed_floor for job in jobs.values() if job.project_id == project)
            before_s = known.get(project, limits_s[project] if was_owed else 0.0)
            self._project_lacks_s[project] = min(max(before_s + sums.get(project, 0.0), -most_s), most_s)
        # What a job that waits is owed stays owed while machines change hands, although no job has them at that moment.
        able = [
            job
            for job in jobs.values()
            if (differing.get(job.id, 0.0) > 0 or (job.state is JobState.QUEUED and job.is_owed_floor))
            and self._is_owed(job, limits_s)
        ]
        chosen: dict[UUID, JobView] = {}
        for job in sorted(able, key=_floor_order):
            chosen.setdefault(job.project_id, job)
        self._owed_floors = {job.id for job in chosen.values()}
        changed = {job.id: int(job.id in self._owed_floors) for job in waiting}
        return {job_id: owed for job_id, owed in changed.items() if owed != jobs[job_id].owed}

    def _is_owed(self, job: JobView, limits_s: Mapping[UUID, float]) -> bool:
        lacks_s = self._project_lacks_s.get(job.project_id, 0.0)
        return lacks_s >= limits_s[job.project_id] or (job.is_owed_floor and lacks_s > 0)


def _floor_order(job: JobView) -> tuple[bool, bool, int, float, int, UUID]:
    is_at_work = job.state is not JobState.QUEUED
    return (is_at_work, not job.is_owed_floor, -job.priority, -job.waiting_s, job.order, job.id)


def limit_s(job: JobView) -> float:
    """Return how many seconds of a machine the job may lack or exceed before one changes hands for that."""
    return max(LEAST_LIMIT_S, LIMIT_HAND_OVERS * job.hand_over_s)


def _owed(job: JobView, lacking_s: float) -> int:
    """What is owed stays owed until the job has caught up, so that machines do not change hands all the time."""
    for owed in (1, -1):
        if owed * lacking_s >= limit_s(job) or (min(job.owed, 1) == owed and owed * lacking_s > 0):
            return owed
    return 0
