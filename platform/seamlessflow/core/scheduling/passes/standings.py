"""What each project has of the fleet against its entitlement of it, while floors are admitted.

Takes the jobs of one priority across projects and the machines that those of higher ones leave. A project's
*entitlement* is what it has if the machines that jobs may use are divided by weight among the projects that may use
them (`dividing`), capped by its quota and by what its jobs could use; its *level* is the number of machines of its
admitted floors by its weight. `next_waiting` says who is served next: a job that is owed a machine, then one of the
project with the lowest level, then the longest wait. Within a project priority comes first, then waiting.

Invariant: what `enter` counts is never more than the floors and engines that were really entered.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from uuid import UUID

from seamlessflow.core.scheduling.passes.dividing import Division, Use
from seamlessflow.core.scheduling.passes.unused import is_unused
from seamlessflow.core.scheduling.snapshot import JobView

Wanted = Mapping[UUID, int]  # machines that jobs at work could use now


@dataclass(slots=True)
class Standing:
    """Of a project. `num_taken`: machines of its floors that were admitted, and engines counted beyond them."""

    weight: float
    entitlement: float
    num_taken: int = 0

    def level(self, num: float = 0) -> float:
        """Return how much the project would have by its weight with `num` machines more."""
        return (self.num_taken + num) / self.weight


def machines_of_floor(job: JobView) -> int:
    """Return how many machines that roll out or train the floor takes at least."""
    return max(int(job.has_rollout), job.num_train_machines)


def equals(jobs: Collection[JobView]) -> Iterator[list[JobView]]:
    """Yield the jobs of each priority across projects, the highest first."""
    ranked = sorted(jobs, key=lambda job: -job.fleet_priority)
    for _, group in groupby(ranked, key=lambda job: job.fleet_priority):
        yield list(group)


@dataclass(slots=True)
class Standings:
    """Of the projects whose jobs have one priority. `at_work`: whether each
    job at work gives all its machines up already; `machines`: what is left for them; `reach`: the classes of machines
    that count for each job; `wanted`: how many machines jobs at work could use; those beyond its floor are a job's
    `claims`."""

    jobs: Sequence[JobView]
    at_work: Mapping[UUID, bool]
    machines: Division
    reach: Mapping[UUID, frozenset[int]]
    wanted: Wanted
    of_project: dict[UUID, Standing] = field(init=False)
    claims: dict[UUID, list[JobView]] = field(init=False)  # that are left
    all_claims: dict[UUID, tuple[JobView, ...]] = field(init=False)
    _uses: dict[UUID, list[Use]] = field(init=False)
    _waiting: dict[UUID, deque[JobView]] = field(init=False)
    _served: set[UUID] = field(default_factory=set)  # who got the engine that it was owed

    def __post_init__(self) -> None:
        own: dict[UUID, list[JobView]] = defaultdict(list)
        for job in self.jobs:
            own[job.project_id].append(job)
        self._waiting = {
            project: deque(sorted((job for job in jobs if job.id not in self.at_work), key=self._order))
            for project, jobs in own.items()
        }
        weights = {project: jobs[0].project_weight for project, jobs in own.items()}
        quotas = {
            project: jobs[0].project_quota
            for project, jobs in own.items()
            if jobs[0].project_quota is not None
        }
        self._uses = {project: self._uses_of(jobs) for project, jobs in own.items()}
        entitlements = self.machines.entitlements(weights, self._uses, quotas)
        self.of_project = {project: Standing(weights[project], entitlements[project]) for project in own}
        self.claims = {}
        if len(own) > 1:
            self.claims = {project: list(self._claims(jobs)) for project, jobs in own.items()}
        self.all_claims = {project: tuple(claims) for project, claims in self.claims.items()}

    def pass_over(self, first: JobView) -> None:
        """Leave a job that waits out of the order: it is served before the others."""
        self._waiting[first.project_id].remove(first)

    def at_work_first(self) -> Iterator[JobView]:
        """Yield the jobs at work; those of each project take the turns of that project in their own order."""
        at_work = [job for job in self.jobs if job.id in self.at_work]
        own: dict[UUID, deque[JobView]] = defaultdict(deque)
        for job in sorted(at_work, key=self._order):
            own[job.project_id].append(job)
        for job in sorted(at_work, key=lambda one: (is_unused(one), self.at_work[one.id], one.order, one.id)):
            yield own[job.project_id].popleft()

    def next_waiting(self) -> JobView | None:
        heads = [waiting[0] for waiting in self._waiting.values() if waiting]
        if not heads:
            return None
        first = min(heads, key=self._rank)
        return self._waiting[first.project_id].popleft()

    def claims_before(self, job: JobView) -> Iterator[JobView]:
        """Yield the jobs of other projects that get an engine more before `job` gets its floor, one by one. Whoever
        could use it, and has less, comes first; at the same level, a floor does."""
        level = self.of_project[job.project_id].level(machines_of_floor(job))
        while not job.is_owed_floor:
            claims = [
                (self.of_project[project].level(1), own[0].order, own[0].id, project)
                for project, own in self.claims.items()
                if own and project != job.project_id
                and (self._is_owed(own[0]) or self.of_project[project].level(1) < level)
            ]  # fmt: skip
            if not claims:
                return
            project = min(claims)[-1]
            claim = self.claims[project].pop(0)
            if claim.is_owed_floor:
                self._served.add(claim.id)
            yield claim

    def _is_owed(self, claim: JobView) -> bool:
        """Whether the job is owed one engine, and its project has less than its entitlement."""
        standing = self.of_project[claim.project_id]
        return (
            claim.is_owed_floor and claim.id not in self._served and standing.num_taken < standing.entitlement
        )

    def enter(self, job: JobView, num: int) -> None:
        self.of_project[job.project_id].num_taken += num

    def close(self) -> None:
        """Leave the rest to the next priority."""
        for project, one in self.of_project.items():
            self.machines.give((self.jobs[0].fleet_priority, project), self._uses[project], one.num_taken)

    def _rank(self, job: JobView) -> tuple[bool, bool, float, float, int, UUID]:
        level = self.of_project[job.project_id].level(machines_of_floor(job))
        return (is_unused(job), not job.is_owed_floor, level, -job.waiting_s, job.order, job.id)

    def _order(self, job: JobView) -> tuple[int, bool, bool, float, int, UUID]:
        is_leaving = self.at_work.get(job.id, False)
        return (-job.priority, is_unused(job), is_leaving, -job.waiting_s, job.order, job.id)

    def _uses_of(self, jobs: Sequence[JobView]) -> list[Use]:
        """Return how many machines the jobs of a project could use, by the classes that they may use."""
        num: dict[frozenset[int], int] = defaultdict(int)
        for job in jobs:
            num[self.reach[job.id]] += max(machines_of_floor(job), self.wanted.get(job.id, 0))
        return [Use(reach, most) for reach, most in num.items()]

    def _claims(self, jobs: Sequence[JobView]) -> Iterator[JobView]:
        """Yield a job for each engine that it could use beyond its floor, those that are owed one first."""
        for job in sorted(jobs, key=lambda one: (-one.owed, one.order, one.id)):
            if job.has_rollout:
                num = self.wanted.get(job.id, 0) - machines_of_floor(job)
                yield from (job for _ in range(min(num, int(self.machines.num_machines(self.reach[job.id])))))
