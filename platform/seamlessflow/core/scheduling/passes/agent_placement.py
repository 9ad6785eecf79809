"""Which machines run whose agents: what `shares` and `placement` are for engines and trainers.

Every served job gets one slot first, as its floor says; then the jobs whose agents are the bottleneck get more, one
round after another, as far as slots and quotas suffice. Agents stay where they are. New ones go to the machine with the
most free slots; if none is free, they wait for one that is leaving, or take the slot of agents that are more than their
job should have.

Invariants: a machine gets no more agents than it has slots; a job's agents are at most once on a machine; agents that
no other job needs stay.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from seamlessflow.core.scheduling.passes.agent_slots import SlotClass, SlotFleet, slots_open
from seamlessflow.core.scheduling.passes.allocation import Allocation
from seamlessflow.core.scheduling.passes.floors import Floors
from seamlessflow.core.scheduling.passes.shares import Shares
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, MachineView, PhaseView

_NEEDED = "another job needs the machine to run its agents"
_MOVING = "the agents of its job move to another machine"


@dataclass(slots=True)
class AgentTargets:
    """`num_given`: how many machines each job's agents should have; `free`: where they go now, by job; `leaving`: the
    phases that end for others, with the reason; `spare`: those beyond what their job should have, which may stay."""

    num_given: Counter[UUID] = field(default_factory=Counter)
    free: dict[UUID, list[MachineView]] = field(default_factory=lambda: defaultdict(list))
    leaving: dict[UUID, tuple[LivePhase, str]] = field(default_factory=dict)
    spare: list[LivePhase] = field(default_factory=list)


def agents_place(slots: SlotFleet, floors: Floors, shares: Shares) -> AgentTargets:
    """Name the machines. `shares` counts what projects hold."""
    targets = AgentTargets()
    jobs = [job for job in floors.served if job.id in floors.with_agents]
    allocation: Allocation[UUID] = Allocation(slots.capacities())
    for job in jobs:
        allocation.add(job.id, slots.classes_for(job), slots.homes(job))
    classes = [
        _Class(one, [job.id for job in jobs if number in allocation.placed(job.id)], slots, targets)
        for number, one in enumerate(slots.classes)
    ]
    for each in classes:
        each.place_floors()
    growing = [job for job in jobs if _most(job, slots, shares) > 1]
    while growing:
        growing = [
            job
            for job in growing
            if targets.num_given[job.id] < _most(job, slots, shares)
            and _grow(job, [classes[number] for number in slots.classes_for(job)], shares)
        ]
    targets.spare = [one for each in classes for one in each.spare()]
    for machine, phase in targets.spare:
        if targets.free.get(phase.job_id):
            targets.leaving.setdefault(phase.id, ((machine, phase), _MOVING))
    return targets


def _most(job: JobView, slots: SlotFleet, shares: Shares) -> int:
    """Return how many machines the job's agents should have at most. More of them help only if engines have
    capacity."""
    kept = max(job.agents_least, min(len(slots.homes(job)), job.agents_kept))
    return max(kept, job.agents_wanted) if shares.has_enough_engines(job) else kept


def _grow(job: JobView, classes: Sequence["_Class"], shares: Shares) -> bool:
    """Give the job one machine more: one where its agents are already, else another. False if there is none."""
    if not shares.may_add_agents(job):
        return False
    if not any(each.retain(job.id) for each in classes) and not any(each.take(job.id) for each in classes):
        return False
    shares.add_agents(job)
    return True


@dataclass(slots=True)
class _OpenMachine:
    """A machine's slots: those that are free now, those that will be, and those that others could give up."""

    machine: MachineView
    spare: list[LivePhase]
    num_free: int = 0
    num_leaving: int = 0
    jobs: set[UUID] = field(default_factory=set)

    def __post_init__(self) -> None:
        agents = self.machine.agents
        num_over = len(agents) - slots_open(self.machine)
        self.num_free = max(0, -num_over)
        self.num_leaving = max(0, sum(phase.is_leaving for phase in agents) - max(0, num_over))
        self.jobs = {phase.job_id for phase in agents}

    @property
    def has_any(self) -> bool:
        return self.num_free > 0 or self.num_leaving > 0 or bool(self.spare)

    @property
    def order(self) -> tuple[int, bool, str]:
        return (-self.num_free, not self.num_leaving, self.machine.name)


class _Class:
    """Places jobs on the machines of one class. `floors`: the jobs that get their first machine there."""

    def __init__(
        self, one: SlotClass, floors: Sequence[UUID], slots: SlotFleet, targets: AgentTargets
    ) -> None:
        self._machines = one.machines
        self._floors = dict.fromkeys(floors)
        self._targets = targets
        self._spare: dict[UUID, list[LivePhase]] = defaultdict(list)  # by machine
        self._spare_of: dict[UUID, list[LivePhase]] = defaultdict(list)  # by job
        for machine in one.machines:
            for phase in machine.agents:
                if slots.is_working(phase) and one.only in (None, phase.job_id):
                    self._keep(machine, phase)

    @cached_property
    def _candidates(self) -> list[tuple[tuple[int, bool, str], _OpenMachine]]:
        """A heap of the machines with slots, the best first. Some of them may have no slot left by now."""
        candidates = [_OpenMachine(machine, self._spare[machine.id]) for machine in self._machines]
        heap = [(candidate.order, candidate) for candidate in candidates if candidate.has_any]
        heapq.heapify(heap)
        return heap

    def spare(self) -> list[LivePhase]:
        """Return the agents beyond what their job should have."""
        return [one for own in self._spare_of.values() for one in own]

    def place_floors(self) -> None:
        for job_id in self._floors:
            self.take(job_id)

    def retain(self, job_id: UUID) -> bool:
        """Let agents of the job that are here stay, beyond those that it has. False if there are none."""
        for one in self._spare_of[job_id]:
            if one[1].id not in self._targets.leaving:
                self._spare_of[job_id].remove(one)
                self._spare[one[0].id].remove(one)
                self._targets.num_given[job_id] += 1
                return True
        return False

    def take(self, job_id: UUID) -> bool:
        """Give the job a slot on a machine that does not run its agents. False if there is none."""
        passed: list[_OpenMachine] = []
        found = self._pop(job_id, passed)
        if found is not None:
            self._fill(found, job_id)
            passed.append(found)
        for candidate in passed:
            heapq.heappush(self._candidates, (candidate.order, candidate))
        return found is not None

    def _pop(self, job_id: UUID, passed: list[_OpenMachine]) -> _OpenMachine | None:
        """Take the best machine for the job off the heap, and what comes before it."""
        while self._candidates:
            _, candidate = heapq.heappop(self._candidates)
            if candidate.has_any and job_id not in candidate.jobs:
                return candidate
            if candidate.has_any:
                passed.append(candidate)
        return None

    def _fill(self, candidate: _OpenMachine, job_id: UUID) -> None:
        candidate.jobs.add(job_id)
        self._targets.num_given[job_id] += 1
        if candidate.num_free:
            candidate.num_free -= 1
            self._targets.free[job_id].append(candidate.machine)
        elif candidate.num_leaving:
            candidate.num_leaving -= 1
        else:
            machine, phase = candidate.spare.pop()
            self._targets.leaving[phase.id] = ((machine, phase), _NEEDED)

    def _keep(self, machine: MachineView, phase: PhaseView) -> None:
        """Let the agents stay if they are the job's first; else note that others could have the slot."""
        if phase.job_id in self._floors:
            del self._floors[phase.job_id]
            self._targets.num_given[phase.job_id] += 1
        else:
            self._spare[machine.id].append((machine, phase))
            self._spare_of[phase.job_id].append((machine, phase))
