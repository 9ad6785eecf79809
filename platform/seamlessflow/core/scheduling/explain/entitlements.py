"""The machines that each project is entitled to, and those that it has: for people, not for decisions.

Takes the plan of a snapshot. A project is entitled to its part, by weight, of the usable machines that its jobs may use
to roll out or train, each counted by its cost, at most its quota of usual machines, while it has jobs that should run;
what a quota cuts off is divided among the others, again by weight. Machines are divided as they are where floors are
given (`dividing`), except that a project is entitled to what it does not need as well. That is lent, so what a project
holds may be more or less. Invariant: entitlements sum to the cost of the machines that any of the jobs may use, or to
what quotas leave of that. Agents count in what is held and in quotas, not in shares.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from uuid import UUID

from seamlessflow.core.scheduling.explain.queue import Queue
from seamlessflow.core.scheduling.passes.dividing import Division, Use
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.snapshot import JobView
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role


@dataclass(frozen=True, slots=True)
class Entitlement:
    """`entitled`: cost of machines by weight; `num_held`: what counts for the quota, which is machines and agent slots;
    `shared_cost`: of the machines that count in shares; `num_agent_slots`: on how many machines its jobs have agents,
    each job counted; `is_short`: a job of the project gets less than it could use of this fleet."""

    entitled: float = 0.0
    num_held: int = 0
    shared_cost: float = 0.0
    num_agent_slots: int = 0
    is_short: bool = False


def entitlements(queue: Queue) -> dict[UUID, Entitlement]:
    """Return the entitlement of each project that has unfinished jobs."""
    snapshot, fleet = queue.plan.snapshot, queue.plan.fleet
    running: dict[UUID, list[JobView]] = defaultdict(list)
    for job in (*queue.plan.floors.served, *(entry.job for entry in queue.entries)):
        running[job.project_id].append(job)
    machines = Division({number: one.cost * len(one.machines) for number, one in enumerate(fleet.classes)})
    entitled = machines.entitlements(
        {project: jobs[0].project_weight for project, jobs in running.items()},
        {project: [_use(fleet, jobs)] for project, jobs in running.items()},
        {
            project: jobs[0].project_quota * fleet.usual_cost
            for project, jobs in running.items()
            if jobs[0].project_quota is not None
        },
    )
    num_held: dict[UUID, int] = defaultdict(int)
    shared_cost: dict[UUID, float] = defaultdict(float)
    num_agent_slots: dict[UUID, int] = defaultdict(int)
    for job in snapshot.jobs:
        for machine, phase in snapshot.live_phases(job.id):
            num_held[job.project_id] += 1
            shared_cost[job.project_id] += machine.cost if phase.role in EXCLUSIVE_ROLES else 0.0
            num_agent_slots[job.project_id] += phase.role is Role.AGENT
    short = {
        entry.job.project_id
        for entry in queue.entries
        if entry.place is None
        or queue.fits_alone(entry.job)  # what no machine can serve, none is missing for
    }
    return {
        project: Entitlement(
            entitled=entitled.get(project, 0.0),
            num_held=num_held[project],
            shared_cost=shared_cost[project],
            num_agent_slots=num_agent_slots[project],
            is_short=project in short,
        )
        for project in {job.project_id for job in snapshot.jobs}
    }


def _use(fleet: Fleet, jobs: Iterable[JobView]) -> Use:
    """Return all machines that roll out or train and that any of the jobs may use."""
    return Use(frozenset().union(*(fleet.reach(job, EXCLUSIVE_ROLES) for job in jobs)), inf)
