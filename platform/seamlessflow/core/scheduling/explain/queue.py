"""Who waits for machines: what each job lacks, who holds the machines that would fit, and until when.

Takes a snapshot, runs the scheduler's own passes over it, and returns an entry for each job that gets less than it
could use: first those without their floor, in the order in which they are served, then those at work that could use
more. Entries have jobs as values; callers decide which names a reader may see. Machines of pools that the
job may not use never appear. Invariant: a job has an entry exactly if it lacks something.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.blame.judging import judge
from seamlessflow.core.scheduling.eligibility import (
    FIT_FILTERS,
    first_rejection,
    is_outside_pools,
    lacks_tags,
    passing_rejection,
)
from seamlessflow.core.scheduling.job_ends import ending_of
from seamlessflow.core.scheduling.passes.demand import UNLIMITED
from seamlessflow.core.scheduling.passes.floors import fits_alone, floor_size
from seamlessflow.core.scheduling.passes.homes import Homes
from seamlessflow.core.scheduling.passes.rotation import QUANTUM_S, gives_way_now
from seamlessflow.core.scheduling.plan import FleetPlan, fleet_plan
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

MAX_HOLDERS = 5  # machines that an entry names for each role; a fleet has thousands
MAX_LOOKED_AT = 200  # machines that fit and are looked at for each role


class Lack(StrEnum):
    """floor: it may not begin, or its floor was lost. quota: its project may hold no more machines. engines: it is at
    work, and more engines would be used. turn: its batch is ready, and others train on the machines."""

    FLOOR = "floor"
    QUOTA = "quota"
    ENGINES = "engines"
    TURN = "turn"


class Until(StrEnum):
    """Until when a machine is not available. `Holder.within_s` goes with `quantum`, `step` and `end`."""

    HANDS_OVER = "hands_over"
    QUANTUM = "quantum"
    STEP = "step"
    END = "end"
    SHARE = "share"
    RESERVED = "reserved"
    OWN_ROLE = "own_role"
    UNUSABLE = "unusable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A machine that would fit, and the job that has it, if any; `reason`: why it cannot be used."""

    machine: MachineView
    until: Until
    job: JobView | None = None
    within_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a job lacks in one role. `num_fitting`: the usable machines that fit; `holders`: the first of those that the
    job does not get, the soonest available first, or machines that would fit if they were usable; `is_counted`: it
    lacks just so many, else it could use at most so many more."""

    role: Role
    num_machines: int
    tags: tuple[str, ...]
    num_fitting: int
    holders: tuple[Holder, ...]
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job that lacks something. `place`: among those that wait for their floor, from 1; None: it is at work."""

    job: JobView
    lack: Lack
    place: int | None = None


class Queue:
    """The entries of a snapshot, in order. `shortages` lists the lacking roles of one entry, which costs more."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.plan = planned(snapshot)
        self.entries = (*_without_floor(self.plan), *_at_work(self.plan))
        self._homes = Homes(self.plan.fleet, snapshot)

    def fits_alone(self, job: JobView) -> bool:
        """Whether the fleet has the job's floor if no other job needs anything."""
        return fits_alone(self.plan.fleet, self._homes, job)

    def shortages(self, entry: QueueEntry) -> tuple[Shortage, ...]:
        job, plan = entry.job, self.plan
        match entry.lack:
            case Lack.FLOOR:
                return tuple(_shortage(entry, role, plan) for role in plan.floors.missing[job.id])
            case Lack.ENGINES:
                return (_shortage(entry, Role.ROLLOUT, plan),)
            case Lack.TURN:
                return (_shortage(entry, Role.TRAIN, plan),)
            case Lack.QUOTA:
                return ()


def planned(snapshot: Snapshot) -> FleetPlan:
    """Return the plan of the jobs that should run."""
    judged = judge(snapshot)
    jobs = judged.snapshot.jobs
    running = [job for job in jobs if ending_of(job) is None and job.state is not JobState.PAUSED]
    return fleet_plan(judged.snapshot, running, judged)


def num_given(plan: FleetPlan, job: JobView, role: Role) -> int:
    """Return how many machines a plan gives to a job in one role."""
    return sum(plan.shares.allocation.placed((job.id, role)).values())


def quota_needed(plan: FleetPlan, job: JobView) -> int:
    """Return the quota with which the job's floor fits beside those of its project that are admitted."""
    admitted = [one for one in plan.floors.admitted if one.project_id == job.project_id]
    return sum(map(floor_size, admitted)) + floor_size(job)


def _without_floor(plan: FleetPlan) -> Iterator[QueueEntry]:
    for place, (job_id, roles) in enumerate(plan.floors.missing.items(), start=1):
        job = plan.snapshot.job(job_id)
        assert job is not None  # a plan is about the jobs of its snapshot
        yield QueueEntry(job, Lack.FLOOR if roles else Lack.QUOTA, place)


def _at_work(plan: FleetPlan) -> Iterator[QueueEntry]:
    in_turn = {job.id for job in plan.shares.unmet_training}
    for job in plan.floors.admitted:
        wanted = plan.demands[job.id].rollout
        if job.id in in_turn:
            yield QueueEntry(job, Lack.TURN)
        elif wanted < UNLIMITED and num_given(plan, job, Role.ROLLOUT) < wanted:
            yield QueueEntry(job, Lack.ENGINES)


def _shortage(entry: QueueEntry, role: Role, plan: FleetPlan) -> Shortage:
    job = entry.job
    fitting = _fitting(job, role, plan)
    looked_at = list(islice(fitting, MAX_LOOKED_AT))
    holders = [one for machine in looked_at if (one := _holder(machine, entry, role, plan)) is not None]
    holders.sort(key=_soonest)
    if not holders and not looked_at:
        holders = list(islice(_unusable(job, role, plan.snapshot.machines), MAX_HOLDERS))
    return Shortage(
        role=role,
        num_machines=_num_lacking(entry, role, plan, len(fitting)),
        is_counted=entry.lack is not Lack.ENGINES,
        tags=tuple(sorted(job.tags_of(role))),
        num_fitting=len(fitting),
        holders=tuple(holders[:MAX_HOLDERS]),
    )


def _fitting(job: JobView, role: Role, plan: FleetPlan) -> list[MachineView]:
    if role is Role.AGENT:
        slots = plan.fleet.slots
        return [machine for number in slots.classes_for(job) for machine in slots.classes[number].machines]
    classes = plan.fleet.classes_for(job, role)
    return [machine for number in classes for machine in plan.fleet.classes[number].machines]


def _num_lacking(entry: QueueEntry, role: Role, plan: FleetPlan, num_fitting: int) -> int:
    if entry.lack is Lack.ENGINES:
        wanted = min(plan.demands[entry.job.id].rollout, num_fitting)
        return max(wanted - num_given(plan, entry.job, role), 1)
    return entry.job.num_train_machines if role is Role.TRAIN else 1


def _unusable(job: JobView, role: Role, machines: Iterable[MachineView]) -> Iterator[Holder]:
    for machine in machines:
        if first_rejection((lacks_tags, is_outside_pools), machine, job, role) is None:
            reason = first_rejection(FIT_FILTERS, machine, job, role) or passing_rejection(machine, job, role)
            if reason is not None:
                yield Holder(machine=machine, until=Until.UNUSABLE, reason=reason)


def _holder(machine: MachineView, entry: QueueEntry, role: Role, plan: FleetPlan) -> Holder | None:
    """Return who has a usable machine that fits; None if it is the entry's own in this role."""
    if role is Role.AGENT:
        return _slot_holder(machine, entry, plan)
    owner, phase = plan.targets.owner_of.get(machine.id), machine.phase
    if owner == (entry.job.id, role):
        return None
    holder = owner[0] if owner is not None else phase.job_id if phase is not None else None
    job = plan.snapshot.job(holder) if holder is not None else plan.floors.reserved_for
    if job is None:
        return Holder(machine=machine, until=Until.OWN_ROLE)
    if job.id == entry.job.id:
        return Holder(machine=machine, job=job, until=Until.OWN_ROLE)
    if holder is None:
        return Holder(machine=machine, job=job, until=Until.RESERVED)
    until, within_s = _until(phase, job, entry, plan)
    return Holder(machine=machine, job=job, until=until, within_s=within_s)


def _slot_holder(machine: MachineView, entry: QueueEntry, plan: FleetPlan) -> Holder | None:
    """Return who has a slot for agents that is free soonest: an agent phase that is leaving, else that of the job which
    has been at work for longest."""
    first = plan.floors.reserved_for
    if len(machine.agents) < machine.agent_slots:
        return (
            Holder(machine=machine, job=first, until=Until.RESERVED)
            if first not in (None, entry.job)
            else None
        )
    held = [
        (phase, job)
        for phase in machine.agents
        if (job := plan.snapshot.job(phase.job_id)) is not None and job.id != entry.job.id
    ]
    if not held:
        return None
    phase, job = max(held, key=lambda one: (one[0].is_leaving, one[1].admitted_s, one[1].id))
    until, within_s = _until(phase, job, entry, plan)
    return Holder(machine=machine, job=job, until=until, within_s=within_s)


def _until(
    phase: PhaseView | None, holder: JobView, entry: QueueEntry, plan: FleetPlan
) -> tuple[Until, float | None]:
    if phase is not None and phase.is_leaving:
        return Until.HANDS_OVER, None
    if entry.lack is Lack.TURN:
        return Until.STEP, holder.batch_interval_s or None
    if entry.lack is Lack.ENGINES:
        return Until.SHARE, None
    first = plan.floors.reserved_for
    if first is not None and first.id == entry.job.id and _gives_way_next(holder, first, plan):
        return Until.STEP, holder.batch_interval_s or None
    if first is not None and first.id == entry.job.id and holder.fleet_priority == entry.job.fleet_priority:
        return Until.QUANTUM, max(QUANTUM_S - holder.admitted_s, 0.0)
    if holder.batch_interval_s:
        return Until.END, holder.num_remaining_updates * holder.batch_interval_s
    return Until.UNKNOWN, None


def _gives_way_next(holder: JobView, first: JobView, plan: FleetPlan) -> bool:
    projects = {holder.project_id, first.project_id}
    return holder.fleet_priority == first.fleet_priority and any(
        projects <= one.of_project.keys() and gives_way_now(one, holder, first)
        for one in plan.floors.standings
    )


_ORDER: Sequence[Until] = tuple(Until)


def _soonest(holder: Holder) -> tuple[int, float, str]:
    within_s = float("inf") if holder.within_s is None else holder.within_s
    return (_ORDER.index(holder.until), within_s, holder.machine.name)
