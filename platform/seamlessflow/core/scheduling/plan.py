"""Runs the passes over a snapshot: who may hold machines, how many, and which ones.

Takes a snapshot and its jobs that should run. The result names the machines that jobs should have; `moves` turns
it into decisions. Machines of jobs that end are left out until they are leaving.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.blame.judging import Judged
from seamlessflow.core.scheduling.passes.agent_placement import AgentTargets, agents_place
from seamlessflow.core.scheduling.passes.arrears import Claim
from seamlessflow.core.scheduling.passes.demand import Demand, demand_of
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.passes.floors import Floors, fits_alone, floors_admit
from seamlessflow.core.scheduling.passes.homes import Homes
from seamlessflow.core.scheduling.passes.placement import Targets, machines_place
from seamlessflow.core.scheduling.passes.rotation import is_before
from seamlessflow.core.scheduling.passes.shares import Shares
from seamlessflow.core.scheduling.passes.standings import Wanted, machines_of_floor
from seamlessflow.core.scheduling.passes.unused import yields_to
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, Owner, Snapshot
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """`displaced`: the jobs whose floor others need, so that they stop; each with the reason. `resting`: the jobs and
    roles that failed and wait before they are tried again. `shortages`: the reasons of jobs that lack a role, for
    others of which the same is true."""

    snapshot: Snapshot
    fleet: Fleet
    floors: Floors
    demands: Mapping[UUID, Demand]
    shares: Shares
    targets: Targets
    agents: AgentTargets
    displaced: Mapping[UUID, str]
    resting: Collection[Owner] = ()
    shortages: dict[Hashable, str] = field(default_factory=dict)

    def rests(self, job: JobView, role: Role) -> bool:
        """Whether the job failed in the role and waits before it is tried again."""
        return (job.id, role) in self.resting

    def is_served(self, job: JobView) -> bool:
        """Whether the job gets machines: its whole floor, or the rest of it."""
        return job.id in self.demands

    def claims(self) -> Iterator[Claim]:
        """Yield what each admitted job holds, machines that leave it included, and could use, and the floors of those
        that wait."""
        for job in self.floors.served:
            demand = self.demands[job.id]
            held_in: dict[int, float] = defaultdict(float)
            live = [one for one, phase in self.snapshot.live_phases(job.id) if phase.role in EXCLUSIVE_ROLES]
            for machine in live:
                # A machine on which no job is given anything any more counts only for the job that has it.
                number = self.fleet.class_of.get(machine.id, -1 - job.order)
                held_in[number] += machine.cost / self.fleet.usual_cost
            num_wanted = demand.rollout + demand.train
            # The machines that it has beyond those that it could use cost as much as its others.
            kept = sum(held_in.values()) * min(1.0, num_wanted / len(live)) if live else 0.0
            wanted = kept + max(num_wanted - len(live), 0)
            yield Claim(job, wanted, held_in, self.fleet.reach(job, EXCLUSIVE_ROLES))
        for job in self.waiting:
            reach = self.fleet.reach(job, EXCLUSIVE_ROLES)
            yield Claim(job, wanted=machines_of_floor(job), held_in={}, reach=reach, is_waiting=True)

    @property
    def waiting(self) -> tuple[JobView, ...]:
        """The jobs in the queue whose floor the fleet has, and which do not rest; none if there is one project only,
        which owes itself nothing."""
        if len({job.project_id for job in self.snapshot.jobs}) <= 1:
            return ()
        failing = {job_id for job_id, _ in self.resting}
        homes = Homes(self.fleet, self.snapshot)
        found = (self.snapshot.job(job_id) for job_id, roles in self.floors.missing.items() if roles)
        return tuple(
            job
            for job in found
            if job is not None
            and job.state is JobState.QUEUED
            and job.id not in failing
            and fits_alone(self.fleet, homes, job)
        )


def fleet_plan(snapshot: Snapshot, jobs: Sequence[JobView], judged: Judged | None = None) -> FleetPlan:
    """Plan for the jobs that should run. `judged`: what to keep from jobs that failed lately."""
    resting = judged.resting if judged is not None else frozenset()
    fleet = Fleet(snapshot, {job.id for job in jobs}, judged.avoided if judged is not None else None)
    homes = Homes(fleet, snapshot)
    for job in jobs:
        if fleet.is_choosy(job) and not fits_alone(fleet, homes, job):
            fleet.accept_all(job)
    # A job that rests and has no machine does not keep others waiting.
    failing = {job_id for job_id, _ in resting}
    at_work = {
        job.id: _is_giving_up(job, snapshot.live_phases(job.id))
        for job in jobs
        if snapshot.live_phases(job.id) or (job.state is not JobState.QUEUED and job.id not in failing)
    }
    floors = floors_admit(fleet, homes, jobs, at_work, _wanted(fleet, snapshot, jobs, at_work, resting))
    demands = {job.id: _demand(fleet, job, snapshot.live_phases(job.id), resting) for job in floors.served}
    shares = Shares(fleet, homes, floors, demands)
    shares.give()
    targets = machines_place(fleet, shares.allocation, {job.id: job for job in floors.served})
    agents = agents_place(fleet.slots, floors, shares)
    displaced = {
        job.id: _why_displaced(floors, job)
        for job in jobs
        if job.id in floors.missing and snapshot.live_phases(job.id) and fits_alone(fleet, homes, job)
    }
    return FleetPlan(snapshot, fleet, floors, demands, shares, targets, agents, displaced, resting)


def _is_giving_up(job: JobView, live: Sequence[LivePhase]) -> bool:
    """Whether the job gives up all that it has, or has done so, so that the job that follows it comes first."""
    if not live:
        return job.state is JobState.RUNNING
    return all(
        phase.is_leaving and (phase.then is None or phase.then.job_id not in (None, job.id))
        for _, phase in live
    )


def _wanted(
    fleet: Fleet,
    snapshot: Snapshot,
    jobs: Sequence[JobView],
    at_work: Collection[UUID],
    resting: Collection[Owner],
) -> Wanted:
    """Return how many engines jobs at work could use. One project has all to itself."""
    if len({job.project_id for job in jobs}) <= 1 or len(at_work) == len(jobs):
        return {}
    return {
        job.id: _demand(fleet, job, snapshot.live_phases(job.id), resting).rollout
        for job in jobs
        if job.id in at_work and job.has_rollout
    }


def _demand(fleet: Fleet, job: JobView, live: Sequence[LivePhase], resting: Collection[Owner]) -> Demand:
    """Return the demand of a job. In a role that waits before it is tried again, it is the number that the job has."""
    demand = demand_of(
        job, live, is_gathering=_is_gathering(fleet, job), engines_each=fleet.engines_each(job)
    )
    if not resting:
        return demand
    num = Counter(phase.role for _, phase in live)
    if (job.id, Role.ROLLOUT) in resting:
        demand = replace(demand, rollout=min(demand.rollout, num[Role.ROLLOUT]), rollout_after=0)
    if (job.id, Role.TRAIN) in resting and not num[Role.TRAIN]:
        demand = replace(demand, train=0)
    return demand


def _is_gathering(fleet: Fleet, job: JobView) -> bool:
    """Whether a machine that also rolls out stands free for the gang of a job, so that the gang comes together."""
    if not job.trains_in_gangs:
        return False
    able = (number for number in fleet.classes_for(job, Role.TRAIN) if fleet.has_free[number])
    return any(Role.ROLLOUT.value in fleet.classes[number].example.tags for number in able)


def _why_displaced(floors: Floors, job: JobView) -> str:
    if job.id in floors.rotated and yields_to(job, floors.rotated[job.id]):
        return "it has no open session and nothing to train, and another job waits for its machines"
    if job.id in floors.rotated and is_before(floors.rotated[job.id], job):
        return "it gives way to a job of its project with a higher priority"
    if job.id in floors.rotated:
        return "its turn is over: another job has waited for its machines"
    lacking = floors.missing[job.id]
    if not lacking:
        return f"its project may hold {job.project_quota} machines"
    roles = " and ".join(lacking)
    return f"it gives way to jobs that are served before it: no machine is left for role {roles}"
