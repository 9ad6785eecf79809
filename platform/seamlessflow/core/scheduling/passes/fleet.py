"""The machines of a snapshot as classes of like machines, and which classes may roll out or train for which job.

A class holds the usable machines (healthy, neither cordoned nor draining) that no rule of `eligibility` distinguishes,
so passes over a fleet cost classes times kinds of jobs, not machines times jobs. A cordoned machine that rolls out or
trains is a class of its own, open only to that job in that role, and so is one in quarantine. Every usable machine is
in exactly one class. Agents run beside this work, in slots (`agent_slots`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from seamlessflow.core.scheduling.eligibility import FIT_FILTERS, first_rejection, may_be_tried
from seamlessflow.core.scheduling.passes.agent_slots import SlotFleet
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Owner, PhaseView, Snapshot
from seamlessflow.core.types.desired_state import ORDINARY_COST
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, ROLE_TAGS, Role

Classes = tuple[int, ...]
Avoided = Mapping[UUID, frozenset[Owner]]  # which jobs should avoid a machine in which role, by machine


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines that every rule treats alike. `only`: the job and role that may use machines which are given no new
    work; `avoided_by`: those that failed there lately."""

    machines: tuple[MachineView, ...]
    only: Owner | None = None
    avoided_by: frozenset[Owner] = frozenset()

    @property
    def example(self) -> MachineView:
        return self.machines[0]

    @property
    def num_roles(self) -> int:
        """In how many roles its machines may work: the fewer, the less it matters to others who takes them."""
        return len(self.example.tags & EXCLUSIVE_ROLES)

    @property
    def cost(self) -> float:
        """What each of its machines counts in shares."""
        return self.example.cost

    @property
    def is_on_trial(self) -> bool:
        """Whether its machine failed before, so that the next phase is a trial."""
        return self.example.quarantine is not None


class Fleet:
    """The classes of a snapshot. `class_of`: the class of each usable machine, by id."""

    def __init__(self, snapshot: Snapshot, running: Collection[UUID], avoided: Avoided | None = None) -> None:
        """`running`: the jobs that should run; machines that others still use are left out until they are leaving."""
        self.classes = _classes_of(snapshot, running, avoided or {})
        self.slots = SlotFleet(snapshot, running, avoided or {})
        self._avoiding = frozenset().union(*(avoided or {}).values())
        self.class_of = {
            machine.id: number for number, one in enumerate(self.classes) for machine in one.machines
        }
        self.has_free = [any(one.phase is None for one in each.machines) for each in self.classes]
        self.snapshot = snapshot
        self._running = frozenset(running)
        self._tagged: dict[frozenset[str], tuple[MachineView, ...]] = {}
        self._by_kind: dict[tuple[object, ...], Classes] = {}
        self._able: dict[tuple[frozenset[str], Classes], tuple[MachineView, ...]] = {}
        # By identity, with the job, so that no other one can get the same.
        self._by_job: dict[int, tuple[JobView, dict[Role, Classes]]] = {}
        self._kept: dict[tuple[UUID, Role], list[int]] = defaultdict(list)
        for number, one in enumerate(self.classes):
            if one.only is not None:
                self._kept[one.only].append(number)

    @cached_property
    def later(self) -> "Fleet":
        """The fleet once jobs that end have left it; the same one if none does."""
        users = {phase.job_id for machine in self.snapshot.machines for phase in machine.phases}
        if users <= self._running:
            return self
        return Fleet(self.snapshot, self._running | users)

    def capacities(self) -> list[int]:
        return [len(one.machines) for one in self.classes]

    def classes_for(self, job: JobView, role: Role) -> Classes:
        """Return the classes whose machines may fill the role, those that can do least else first."""
        known = self._by_job.get(id(job))
        if known is None:
            known = self._by_job[id(job)] = (job, {})
        classes = known[1].get(role)
        if classes is None:
            classes = known[1][role] = self._classes_for(job, role)
        return classes

    def reach(self, job: JobView, roles: Collection[Role]) -> frozenset[int]:
        """Return the classes whose machines may fill any of the roles."""
        return frozenset(number for role in roles for number in self.classes_for(job, role))

    def tagged(self, tags: frozenset[str]) -> tuple[MachineView, ...]:
        """Return the machines of the snapshot that have all of the tags, usable or not."""
        if tags not in self._tagged:
            self._tagged[tags] = tuple(one for one in self.snapshot.machines if not one.missing(tags))
        return self._tagged[tags]

    def able(self, job: JobView, role: Role) -> tuple[MachineView, ...]:
        """Return the machines that may fill the role, usable ones only."""
        key = (job.tags_of(role), self.classes_for(job, role))
        if key not in self._able:
            self._able[key] = tuple(one for one in self.tagged(key[0]) if self.class_of.get(one.id) in key[1])
        return self._able[key]

    def engines_each(self, job: JobView) -> int:
        """Return how many engines of the job each machine runs that may roll out for it, at least."""
        classes = self.classes_for(job, Role.ROLLOUT)
        return min((job.engines_on(self.classes[number].example) for number in classes), default=1)

    def _classes_for(self, job: JobView, role: Role) -> Classes:
        kind = (
            role,
            job.tags_of(role),
            job.pools,
            job.engine,
            job.devices_per_engine,
            job.trains_in_gangs,
            job.least_ranks,
            job.needs and job.needs.key,
        )
        classes = self._by_kind.get(kind)
        if classes is None:
            classes = self._by_kind[kind] = self._fitting(job, role)
        if (job.id, role) in self._avoiding:
            classes = tuple(one for one in classes if (job.id, role) not in self.classes[one].avoided_by)
        kept = self._kept.get((job.id, role))
        return classes if kept is None else (*kept, *classes)

    def avoids(self, job: JobView, role: Role, machine: MachineView) -> bool:
        """Whether the job failed in the role on the machine so lately that it should work elsewhere."""
        number = self.class_of.get(machine.id)
        is_avoided = number is not None and (job.id, role) in self.classes[number].avoided_by
        return is_avoided and (job.id, role) in self._avoiding

    def is_choosy(self, job: JobView) -> bool:
        return any((job.id, role) in self._avoiding for role in Role)

    def accept_all(self, job: JobView) -> None:
        """Let the job go back to the machines where it failed."""
        self._avoiding -= {(job.id, role) for role in Role}
        self._by_job.pop(id(job), None)
        self.slots.accept_all(job)

    @cached_property
    def usual_cost(self) -> float:
        """What a machine that rolls out or trains costs on average."""
        costs = [(one.cost, len(one.machines)) for one in self.classes if one.num_roles]
        num = sum(num for _, num in costs)
        return sum(cost * num for cost, num in costs) / num if num else ORDINARY_COST

    def num_machines(self, classes: Classes) -> int:
        return sum(len(self.classes[number].machines) for number in classes)

    def _fitting(self, job: JobView, role: Role) -> Classes:
        fitting = [
            number
            for number, one in enumerate(self.classes)
            if one.only is None and first_rejection(FIT_FILTERS, one.example, job, role) is None
        ]
        return tuple(sorted(fitting, key=self._order))

    def _order(self, number: int) -> tuple[bool, int, int]:
        one = self.classes[number]
        return one.is_on_trial, one.num_roles, number


def _classes_of(snapshot: Snapshot, running: Collection[UUID], avoided: Avoided) -> list[MachineClass]:
    wanted = ROLE_TAGS.union(
        *(tags for job in snapshot.jobs for tags in (job.rollout_tags, job.train_tags, job.agent_tags)),
    )
    engines = frozenset(job.engine for job in snapshot.jobs)
    alike: dict[object, list[MachineView]] = defaultdict(list)
    groups: dict[object, list[MachineView]] = {}  # by what machines say of themselves
    kept: list[MachineClass] = []
    for machine in snapshot.machines:
        phase = machine.phase
        is_used = phase is not None and not phase.is_leaving and phase.job_id not in running
        if not machine.is_healthy or machine.is_draining or is_used:
            continue
        if machine.is_cordoned or not may_be_tried(machine, Role.ROLLOUT):
            if (staying := _staying(machine)) is not None:
                kept.append(MachineClass((machine,), (staying.job_id, staying.role)))
            continue
        judged = (machine.quarantine is not None, avoided.get(machine.id) if avoided else None)
        reported = (
            machine.tags,
            machine.labels & wanted,
            machine.pool,
            machine.cost,
            machine.engine_kinds,
            machine.memory,
            machine.num_devices,
            machine.has_gpus,
            judged,
        )
        group = groups.get(reported)
        if group is None:
            group = groups[reported] = alike[_key(machine, wanted, engines), judged]
        group.append(machine)
    classes = [_open_class(tuple(machines), avoided) for machines in alike.values()]
    return [*classes, *kept]


def _open_class(machines: tuple[MachineView, ...], avoided: Avoided) -> MachineClass:
    return MachineClass(machines, avoided_by=avoided.get(machines[0].id, frozenset()))


def _staying(machine: MachineView) -> PhaseView | None:
    phase = machine.phase
    is_stray = phase is not None and (phase.is_leaving or phase.role.value not in machine.tags)
    return None if is_stray else phase


def _key(machine: MachineView, wanted: frozenset[str], engines: frozenset[str]) -> object:
    kinds = None if machine.engine_kinds is None else machine.engine_kinds & engines
    devices = (machine.num_devices, machine.has_gpus, machine.memory)
    tags = (machine.tags | machine.labels) & wanted
    return (tags, machine.pool, machine.cost, kinds, devices)
