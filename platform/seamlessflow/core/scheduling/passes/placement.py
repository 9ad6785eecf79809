"""Which machine works for whom: the third of the scheduler's passes.

Takes how many machines of each class a job should have in each role, and names the machines. What runs stays where it
is as far as that number goes. A trainer returns to the machine where its state is, and waits for it for a while if
another job trains there. After that, free machines come first, then those that are leaving, then those whose holder has
more than its share: the ones with the fewest requests in flight first, because what a request has in an engine's cache
must be computed again elsewhere. Machines that have a trainer's state are taken last, and their own jobs keep them
longest: another owner of one loses it at the next step there.

Invariants: a machine gets at most one owner; no owner gets more machines than it was given; a machine without an owner
keeps its phase.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from uuid import UUID

from seamlessflow.core.scheduling.passes.allocation import Allocation
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Owner
from seamlessflow.core.types.tags import Role

HOLD_HAND_OVERS = (
    4.0  # an engine with requests is not taken before it has run for as long as this many hand-overs
)
MOVE_PATIENCE_S = 10.0  # a trainer waits this long for the machine that has its state before it moves


@dataclass(slots=True)
class Targets:
    """Who should have which machine. `owner_of`: by machine; machines without an entry keep what they do."""

    owner_of: dict[UUID, Owner] = field(default_factory=dict)
    machines_of: dict[Owner, list[MachineView]] = field(default_factory=lambda: defaultdict(list))

    def set_all(self, machines: list[MachineView], owner: Owner) -> None:
        for machine in machines:
            self.owner_of[machine.id] = owner
        self.machines_of[owner] += machines


def machines_place(fleet: Fleet, allocation: Allocation[Owner], jobs: Mapping[UUID, JobView]) -> Targets:
    """Name the machines. `jobs`: the admitted jobs, in the order in which they are served."""
    wanted: dict[int, dict[Owner, int]] = defaultdict(dict)
    for job_id, role in itertools.product(jobs, (Role.ROLLOUT, Role.TRAIN)):
        for number, num in allocation.placed((job_id, role)).items():
            wanted[number][job_id, role] = num
    targets = Targets()
    trains_at = {machine for job in jobs.values() if job.has_rollout for machine in job.trainer_state}
    for number in sorted(wanted):
        _Class(fleet.classes[number].machines, wanted[number], jobs, targets, trains_at).place()
    return targets


class _Class:
    """Places owners on the machines of one class. `left`: how many machines each owner still gets; `trains_at`: the
    machines that have a trainer's state.

    Machines are grouped by who has them, so that what stays costs little. They come in the order of their names.
    """

    def __init__(
        self,
        machines: tuple[MachineView, ...],
        left: dict[Owner, int],
        jobs: Mapping[UUID, JobView],
        targets: Targets,
        trains_at: Collection[UUID],
    ) -> None:
        self._machines = machines
        self._left = left
        self._num_wanted = dict(left)
        self._jobs = jobs
        self._targets = targets
        self._working: dict[Owner, list[MachineView]] = defaultdict(list)
        self._promised: dict[Owner | None, list[MachineView]] = defaultdict(list)
        self._leaving: list[MachineView] = []
        self._is_any_taken = False  # by another owner than the one that works there
        self._trains_at = trains_at
        free: list[MachineView] = []
        for machine in machines:
            phase = machine.phase
            if phase is None:
                free.append(machine)
            elif phase.is_leaving:
                self._leaving.append(machine)
                self._promised[promised_to(machine)].append(machine)
            else:
                self._working[phase.job_id, phase.role].append(machine)
        free.sort(key=lambda machine: machine.id in self._trains_at)
        self._idle = iter([*free, *self._leaving])

    def place(self) -> None:
        self._keep(lambda role: role is not Role.ROLLOUT)
        for owner in self._owners(Role.TRAIN):
            self._place_trainer(owner)
        self._keep(lambda role: role is Role.ROLLOUT)
        for machine in self._leaving:
            if (promised := promised_to(machine)) is not None:
                self._take(machine, promised)
        for owner in self._owners(Role.ROLLOUT):
            self._take_first(owner, self._idle)
            if self._left[owner]:
                self._take_first(owner, self._busy)

    @cached_property
    def _by_id(self) -> dict[UUID, MachineView]:
        return {machine.id: machine for machine in self._machines}

    @cached_property
    def _busy(self) -> Iterator[MachineView]:
        """Machines at work, first those of owners that have too many, then those without a trainer's state, then those
        with the fewest requests. Everybody goes on where the one before stopped; those that stay when it is asked for
        first are left out."""
        busy = [
            (
                len(machines) <= self._num_wanted.get(owner, 0),
                one.id in self._trains_at,
                num_in_flight(one),
                one.name,
                one,
            )
            for owner, machines in self._working.items()
            for one in machines
            if one.id not in self._targets.owner_of
        ]
        return iter([one for *_, one in sorted(busy, key=itemgetter(0, 1, 2, 3))])

    def _owners(self, role: Role) -> list[Owner]:
        return [owner for owner, left in self._left.items() if left and owner[1] is role]

    def _keep(self, is_meant: Callable[[Role], bool]) -> None:
        """Let machines go on with what they do: first the one that has the job's trainer's state, then those with the
        most requests."""
        owner_of = self._targets.owner_of
        for owner, machines in self._working.items():
            num = self._left.get(owner, 0) if is_meant(owner[1]) else 0
            if num > 0:
                if self._is_any_taken:
                    machines = [one for one in machines if one.id not in owner_of]
                at_home = self._jobs[owner[0]].trainer_state
                staying = sorted(machines, key=num_in_flight, reverse=True)
                if at_home:
                    staying.sort(key=lambda one: one.id in at_home, reverse=True)
                staying = staying[:num]
                self._left[owner] -= len(staying)
                self._targets.set_all(staying, owner)

    def _take(self, machine: MachineView, owner: Owner) -> None:
        """Give the machine to the owner, unless it has an owner already or the owner has enough."""
        if self._left.get(owner, 0) > 0 and machine.id not in self._targets.owner_of:
            self._left[owner] -= 1
            self._targets.set_all([machine], owner)
            self._is_any_taken = True

    def _place_trainer(self, owner: Owner) -> None:
        job = self._jobs[owner[0]]
        at_home = [self._by_id[one] for one in sorted(job.trainer_state) if one in self._by_id]
        if job.due_age_s < MOVE_PATIENCE_S and at_home and all(map(self._trains_somebody, at_home)):
            return
        own = [machine for role in Role for machine in self._working.get((job.id, role), ())]
        own.sort(key=lambda one: (num_in_flight(one), one.name))
        for machines in (self._promised[owner], at_home, self._idle, own):
            self._take_first(owner, machines)
        if self._left[owner]:
            self._take_first(owner, self._busy)

    def _trains_somebody(self, machine: MachineView) -> bool:
        owner = self._targets.owner_of.get(machine.id)
        return owner is not None and owner[1] is Role.TRAIN

    def _take_first(self, owner: Owner, machines: Iterable[MachineView]) -> None:
        """Take as many of the machines, in order, as the owner still gets."""
        if not self._left[owner]:
            return
        for machine in machines:
            if owner[1] is not Role.ROLLOUT or not self._is_held_on_to(machine):
                self._take(machine, owner)
            if not self._left[owner]:
                return

    def _is_held_on_to(self, machine: MachineView) -> bool:
        """Whether its engine was handed over so lately that taking it would cost more than it brings."""
        phase = machine.phase
        holder = self._jobs.get(phase.job_id) if phase is not None else None
        if phase is None or holder is None or phase.is_leaving or phase.role is not Role.ROLLOUT:
            return False
        return phase.num_in_flight > 0 and phase.age_s < HOLD_HAND_OVERS * holder.hand_over_s


def working_for(machine: MachineView) -> Owner | None:
    """Return the job and role of the machine's phase, unless that is leaving."""
    phase = machine.phase
    return None if phase is None or phase.is_leaving else (phase.job_id, phase.role)


def promised_to(machine: MachineView) -> Owner | None:
    """Return who was decided to get the machine after the phase that is leaving."""
    phase = machine.phase
    if phase is None or not phase.is_leaving or phase.then is None:
        return None
    return (phase.then.job_id or phase.job_id, phase.then.role)


def num_in_flight(machine: MachineView) -> int:
    return machine.phase.num_in_flight if machine.phase is not None else 0
