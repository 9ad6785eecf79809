"""Runs the passes over a snapshot: who may hold machines, how many, and which ones.

Takes a snapshot and its jobs that should run. The result names the machines that somebody should have; `moves` turns
it into decisions. Machines of jobs that end are left out until they are leaving.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.agent_placement import AgentTargets, agents_place
from seamlessflow.core.scheduling.arrears import Claim
from seamlessflow.core.scheduling.demand import Demand, demand_of
from seamlessflow.core.scheduling.fleet import Fleet
from seamlessflow.core.scheduling.floors import Floors, fits_alone, floors_admit
from seamlessflow.core.scheduling.homes import Homes
from seamlessflow.core.scheduling.judging import Judged
from seamlessflow.core.scheduling.placement import Targets, machines_place
from seamlessflow.core.scheduling.shares import Shares
from seamlessflow.core.scheduling.snapshot import Held, JobView, Owner, Snapshot
from seamlessflow.core.scheduling.unused import yields_to
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """`displaced`: the jobs whose floor others need, so that they stop; each with the reason. `resting`: the jobs and
    roles that failed and wait before they are tried again. `shortages`: what was said of jobs that lack a role, for
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
        """Whether the job gets machines: its whole floor, or what is left of it."""
        return job.id in self.demands

    def claims(self) -> Iterator[Claim]:
        """Yield what each admitted job holds, machines that leave it included, and could use."""
        for job in self.floors.served:
            demand = self.demands[job.id]
            costs = [
                machine.cost / self.fleet.usual_cost
                for machine, phase in self.snapshot.held_by(job.id)
                if phase.role in EXCLUSIVE_ROLES
            ]
            num_wanted, held = demand.rollout + demand.train, sum(costs)
            # What it holds beyond what it could use costs as much as the rest of what it holds.
            kept = held * min(1.0, num_wanted / len(costs)) if costs else 0.0
            yield Claim(job, wanted=kept + max(num_wanted - len(costs), 0), held=held)


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
        job.id
        for job in jobs
        if snapshot.held_by(job.id) or (job.state is not JobState.QUEUED and job.id not in failing)
    }
    floors = floors_admit(fleet, homes, jobs, at_work)
    demands = {job.id: _demand(fleet, job, snapshot.held_by(job.id), resting) for job in floors.served}
    shares = Shares(fleet, homes, floors, demands)
    shares.give()
    targets = machines_place(fleet, shares.allocation, {job.id: job for job in floors.served})
    agents = agents_place(fleet.slots, floors, shares)
    displaced = {
        job.id: _why_displaced(floors, job)
        for job in jobs
        if job.id in floors.missing and snapshot.held_by(job.id) and fits_alone(fleet, homes, job)
    }
    return FleetPlan(snapshot, fleet, floors, demands, shares, targets, agents, displaced, resting)


def _demand(fleet: Fleet, job: JobView, held: Sequence[Held], resting: Collection[Owner]) -> Demand:
    """Return what a job could use. In a role that waits before it is tried again, that is what it has."""
    demand = demand_of(
        job, held, is_gathering=_is_gathering(fleet, job), engines_each=fleet.engines_each(job)
    )
    if not resting:
        return demand
    num = Counter(phase.role for _, phase in held)
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
    if job.id in floors.rotated:
        return "its turn is over: another job has waited for its machines"
    lacking = floors.missing[job.id]
    if not lacking:
        return f"its project may hold {job.project_quota} machines"
    roles = " and ".join(lacking)
    return f"it gives way to jobs that are served before it: no machine is left for role {roles}"
