"""Runs the passes over a snapshot: who may hold machines, how many, and which ones.

Takes a snapshot and its jobs that should run. The result names the machines that somebody should have; `moves` turns
it into decisions. Machines of jobs that end are left out until they are leaving.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.demand import Demand, demand_of
from seamlessflow.core.scheduling.fleet import Fleet
from seamlessflow.core.scheduling.floors import Floors, fits_alone, floors_admit
from seamlessflow.core.scheduling.homes import Homes
from seamlessflow.core.scheduling.placement import Targets, machines_place
from seamlessflow.core.scheduling.shares import Shares
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot
from seamlessflow.core.types.tags import Role


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """`displaced`: the jobs whose floor others need, so that they stop; each with the reason."""

    snapshot: Snapshot
    fleet: Fleet
    floors: Floors
    demands: Mapping[UUID, Demand]
    shares: Shares
    targets: Targets
    displaced: Mapping[UUID, str]

    def is_served(self, job: JobView) -> bool:
        """Whether the job gets machines: its whole floor, or what is left of it."""
        return job.id in self.demands


def fleet_plan(snapshot: Snapshot, jobs: Sequence[JobView]) -> FleetPlan:
    fleet = Fleet(snapshot, {job.id for job in jobs})
    homes = Homes(fleet, snapshot)
    at_work = {job.id for job in jobs if job.state is not JobState.QUEUED or snapshot.held_by(job.id)}
    floors = floors_admit(fleet, homes, jobs, at_work)
    demands = {
        job.id: demand_of(job, snapshot.held_by(job.id), is_gathering=_is_gathering(fleet, job))
        for job in floors.served
    }
    shares = Shares(fleet, homes, floors, demands)
    shares.give()
    targets = machines_place(fleet, shares.allocation, {job.id: job for job in floors.served})
    displaced = {
        job.id: _why_displaced(floors, job)
        for job in jobs
        if job.id in floors.missing and snapshot.held_by(job.id) and fits_alone(fleet, homes, job)
    }
    return FleetPlan(snapshot, fleet, floors, demands, shares, targets, displaced)


def _is_gathering(fleet: Fleet, job: JobView) -> bool:
    """Whether a machine that also rolls out stands free for the gang of a job, so that the gang comes together."""
    if not job.trains_in_gangs:
        return False
    able = (number for number in fleet.classes_for(job, Role.TRAIN) if fleet.has_free[number])
    return any(Role.ROLLOUT.value in fleet.classes[number].example.tags for number in able)


def _why_displaced(floors: Floors, job: JobView) -> str:
    if job.id in floors.rotated:
        return "its turn is over: another job has waited for its machines"
    lacking = floors.missing[job.id]
    if not lacking:
        return f"its project may hold {job.project_quota} machines"
    roles = " and ".join(lacking)
    return f"it gives way to jobs that are served before it: no machine is left for role {roles}"
