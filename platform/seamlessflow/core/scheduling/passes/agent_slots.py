"""Slots for agents: which machines can run the agents of which jobs, in classes of like machines.

Agents run beside whatever else their machine does, as many jobs at once as it has slots, and a job at most once on a
machine. A class holds the usable machines that no rule distinguishes, and as many units as they have slots; slots that
jobs which do not run still use are left out. Where a machine gets no new agents (it is cordoned or in quarantine, or
its supervisor cannot run them beside other work), each phase that may stay is a class of its own, open only to its job.
After a quarantine, agents of one job at a time try the machine out, beside what else tries it out.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.scheduling.eligibility import (
    FIT_FILTERS,
    first_rejection,
    may_be_tried,
)
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Owner, PhaseView, Snapshot
from seamlessflow.core.types.tags import ROLE_TAGS, Role

Classes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotClass:
    """Machines that every rule treats alike, and their units. `only`: the job that may stay where others may not go;
    `avoided_by`: the jobs whose agents failed there lately."""

    machines: tuple[MachineView, ...]
    num_units: int
    only: UUID | None = None
    avoided_by: frozenset[Owner] = frozenset()

    @property
    def is_mixed(self) -> bool:
        """Whether its machines may do other work too."""
        return len(self.machines[0].tags & ROLE_TAGS) > 1


class SlotFleet:
    def __init__(
        self, snapshot: Snapshot, running: Collection[UUID], avoided: Mapping[UUID, frozenset[Owner]]
    ) -> None:
        """`running`: the jobs that should run; `avoided`: which jobs should avoid a machine, by machine."""
        self._avoided = avoided
        self._accepting: set[UUID] = set()
        self.classes: list[SlotClass] = []
        self._running = running
        self._by_kind: dict[tuple[object, ...], Classes] = {}
        self._kept: dict[UUID, list[int]] = defaultdict(list)
        self._homes: dict[UUID, list[int]] = defaultdict(list)
        wanted = ROLE_TAGS.union(*(job.agent_tags for job in snapshot.jobs))
        agent_tag = Role.AGENT.value
        alike: dict[object, list[MachineView]] = defaultdict(list)
        for machine in snapshot.machines:
            if not machine.is_healthy or machine.is_draining or agent_tag not in machine.tags:
                continue
            if machine.is_cordoned or not may_be_tried(machine, Role.AGENT):
                self._keep(machine)
                continue
            judged = None if machine.quarantine is None else machine.id
            alike[
                (machine.tags | machine.labels) & wanted, machine.pool, judged, avoided.get(machine.id)
            ].append(machine)
        for machines in alike.values():
            self._add(machines)

    def capacities(self) -> list[int]:
        return [one.num_units for one in self.classes]

    def classes_for(self, job: JobView) -> Classes:
        """Return the classes where the job's agents may run: where they may only stay first, then those of machines
        that do nothing else."""
        kind = (job.agent_tags, job.pools)
        classes = self._by_kind.get(kind)
        if classes is None:
            classes = self._by_kind[kind] = self._fitting(job)
        if self._avoided and job.id not in self._accepting:
            avoiding = (job.id, Role.AGENT)
            classes = tuple(one for one in classes if avoiding not in self.classes[one].avoided_by)
        return (*self._kept.get(job.id, ()), *classes)

    def accept_all(self, job: JobView) -> None:
        """Let the job's agents go back to the machines where they failed."""
        self._accepting.add(job.id)

    def homes(self, job: JobView) -> list[int]:
        """Return the class of each machine that runs the job's agents and should go on, if the job may use it."""
        classes = self.classes_for(job)
        return [number for number in self._homes.get(job.id, ()) if number in classes]

    def is_working(self, phase: PhaseView) -> bool:
        """Whether the phase works for a job that should run, and is not leaving."""
        return not phase.is_leaving and phase.job_id in self._running

    def _keep(self, machine: MachineView) -> None:
        for phase in machine.agents:
            if self.is_working(phase):
                self._kept[phase.job_id].append(len(self.classes))
                self._homes[phase.job_id].append(len(self.classes))
                self.classes.append(SlotClass((machine,), 1, phase.job_id))

    def _add(self, machines: list[MachineView]) -> None:
        num_units = 0
        for machine in machines:
            working = [phase for phase in machine.agents if self.is_working(phase)]
            num_lost = sum(not phase.is_leaving for phase in machine.agents) - len(working)
            num_units += max(0, slots_open(machine) - num_lost)
            for phase in working:
                self._homes[phase.job_id].append(len(self.classes))
        avoided_by = self._avoided.get(machines[0].id, frozenset())
        self.classes.append(SlotClass(tuple(machines), num_units, avoided_by=avoided_by))

    def _fitting(self, job: JobView) -> Classes:
        fitting = [
            number
            for number, one in enumerate(self.classes)
            if one.only is None and first_rejection(FIT_FILTERS, one.machines[0], job, Role.AGENT) is None
        ]
        return tuple(sorted(fitting, key=lambda number: (self.classes[number].is_mixed, number)))


def slots_open(machine: MachineView) -> int:
    """Return how many agent phases may be on a machine that gets new ones: on trial, one more than are there."""
    slots = machine.agent_slots
    return slots if machine.quarantine is None else min(slots, len(machine.agents) + 1)
