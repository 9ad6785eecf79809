"""Which jobs may hold machines: the first of the scheduler's passes.

A job's floor is what it needs to make progress at all: a slot for its agents, one engine, and as many machines as train
together. Engines need machines of their own; agents run beside them. Training is done in turns, so jobs share the
machines that train, and engines may run on them meanwhile; only a job that does nothing but train keeps its machines. A
job is admitted with its whole floor or not at all.

Jobs are admitted by their priority across projects. Among equals, those at work come first, then those that wait, by
what their projects hold against their weights (`standings`); within a project, the highest priority and then the
longest wait comes first. The first of those that wait has its floor reserved: no job after it is admitted to machines
that it needs. Who gives way to a job that does not fit, and when, is in `rotation`; the freed machines go to that job.
So every floor that fits the fleet is admitted within a bound, whatever arrives later, unless its project has more than
those whose jobs come and go on the machines that it needs.

A job at work whose floor the fleet has lost is *incomplete*: it goes on with machines that no other needs, so that a
batch that is ready is still trained.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from seamlessflow.core.scheduling.passes.allocation import Allocation
from seamlessflow.core.scheduling.passes.dividing import Division
from seamlessflow.core.scheduling.passes.fleet import Classes, Fleet
from seamlessflow.core.scheduling.passes.homes import Homes
from seamlessflow.core.scheduling.passes.rotation import rotating
from seamlessflow.core.scheduling.passes.standings import Standings, Wanted, equals, machines_of_floor
from seamlessflow.core.scheduling.snapshot import JobView, Owner
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role


@dataclass(frozen=True, slots=True)
class Floors:
    """`admitted`, `incomplete`: in the order in which they are served; `exclusive`: the classes of the machines that
    endless training has for itself; `with_agents`: the jobs that have a slot for their agents; `missing`: the roles
    that each job that was not admitted lacks, none if it is for its project's quota; `rotated`: who gives way now, and
    to whom; `reserved_for`: the first of those that wait; `standings`: what projects have of their parts."""

    admitted: tuple[JobView, ...] = ()
    incomplete: tuple[JobView, ...] = ()
    exclusive: Mapping[Owner, Sequence[int]] = field(default_factory=dict)
    with_agents: frozenset[UUID] = frozenset()
    missing: Mapping[UUID, tuple[Role, ...]] = field(default_factory=dict)
    rotated: Mapping[UUID, JobView] = field(default_factory=dict)
    reserved_for: JobView | None = None
    standings: Sequence[Standings] = ()

    @property
    def served(self) -> tuple[JobView, ...]:
        return (*self.admitted, *self.incomplete)


def floors_admit(
    fleet: Fleet,
    homes: Homes,
    jobs: Sequence[JobView],
    at_work: Mapping[UUID, bool],
    wanted: Wanted | None = None,
) -> Floors:
    """Admit jobs. `at_work`: those that have machines or have left the queue, and whether each
    gives all its machines up already; `wanted`: how many machines each of them
    could use now."""
    admission = _admit(fleet, homes, jobs, at_work, wanted or {})
    rotated = rotating(admission, partial(_fits, fleet, homes), at_work)
    if not rotated:
        return admission.floors
    staying = [job for job in jobs if job.id not in rotated]
    again = _admit(fleet, homes, staying, at_work, wanted or {}, _Turn.after(admission, rotated)).floors
    missing = {**again.missing, **dict.fromkeys(rotated, (Role.ROLLOUT,))}
    return replace(again, missing=missing, rotated=rotated)


def fits_alone(fleet: Fleet, homes: Homes, job: JobView) -> bool:
    """Whether the fleet has the job's floor if no other job needs anything."""
    return not _Book(fleet, homes).enter(job)


def _fits_later(fleet: Fleet, homes: Homes, job: JobView) -> bool:
    """Whether the fleet has the job's floor for itself once jobs that end have left it: else their machines, which
    leave one after the other, would be given to later jobs each time."""
    if fits_alone(fleet, homes, job):
        return True
    later = fleet.later
    return later is not fleet and fits_alone(later, Homes(later, later.snapshot), job)


def floor_size(job: JobView) -> int:
    """Return the number of machines that the floor takes at least. A slot for agents counts as a machine."""
    return max(int(job.has_rollout), job.num_train_machines) + int(job.has_agents)


@dataclass(slots=True)
class _Admission:
    """Admits jobs one by one. `firsts`: of each project, the first that waits and does not fit; `standings`: of each
    priority across projects."""

    fleet: Fleet
    homes: Homes
    at_work: Mapping[UUID, bool]
    book: "_Book"
    admitted: list[JobView] = field(default_factory=list)
    incomplete: list[JobView] = field(default_factory=list)
    missing: dict[UUID, tuple[Role, ...]] = field(default_factory=dict)
    firsts: dict[UUID, JobView] = field(default_factory=dict)
    standings: list[Standings] = field(default_factory=list)
    claimed: list[JobView] = field(default_factory=list)  # those at work that got engines beside their floors
    _claimed_before: dict[UUID, tuple[JobView, ...]] = field(default_factory=dict)
    _held_by: dict[UUID, int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, job: JobView, standings: Standings) -> None:
        held = self._held_by[job.project_id] + floor_size(job)
        if job.project_quota is not None and held > job.project_quota:
            self.missing[job.id] = ()
            return
        lacking = self.book.enter(job)
        if not lacking:
            self.admitted.append(job)
            self._held_by[job.project_id] = held
            standings.enter(job, machines_of_floor(job))
            return
        self.missing[job.id] = lacking
        if job.id in self.at_work:
            if not fits_alone(self.fleet, self.homes, job):
                self.incomplete.append(job)
        elif job.project_id not in self.firsts and _fits_later(self.fleet, self.homes, job):
            self.firsts[job.project_id] = job
            self._claimed_before[job.id] = tuple(self.claimed)
            self.book.keep_for(job, self.book.reserve(job))

    def claimed_before(self, first: JobView) -> Sequence[JobView]:
        """Return the jobs whose claims came before the first that waits, one for each engine."""
        return self._claimed_before[first.id]

    def contending(self, first: JobView) -> set[UUID]:
        """Return the admitted jobs that use machines which the first lacks, or could make way for those that do."""
        lacking, reach, slots = self.missing[first.id], self.fleet.reach, self.fleet.slots.classes_for
        found = set[UUID]()
        if Role.ROLLOUT in lacking:  # training in turns needs no machine of its own
            units = {one.id: reach(one, [_roles(one)[0]]) for one in self.admitted}
            found |= _connected(reach(first, [Role.ROLLOUT]), units)
        if Role.TRAIN in lacking:
            machines = {one.id: reach(one, EXCLUSIVE_ROLES) for one in self.admitted}
            found |= _connected(reach(first, [Role.TRAIN]), machines)
        if Role.AGENT in lacking:
            found |= _connected(slots(first), {one.id: slots(one) for one in self.admitted if one.has_agents})
        return found

    @property
    def floors(self) -> Floors:
        for job in self.incomplete:
            self.book.reserve(job)
        with_agents = frozenset(
            job.id for job in (*self.admitted, *self.incomplete) if self.book.has_slot(job)
        )
        return Floors(
            tuple(self.admitted), tuple(self.incomplete), self.book.exclusive, with_agents, self.missing,
            reserved_for=next(iter(self.firsts.values()), None), standings=self.standings,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Turn:
    """Others give way to `first`, so it comes right after those that were `admitted` beside it: no other job gets what
    is given up."""

    first: JobView
    admitted: frozenset[UUID]

    @classmethod
    def after(cls, admission: _Admission, rotated: Mapping[UUID, JobView]) -> "_Turn":
        return cls(next(iter(rotated.values())), frozenset(job.id for job in admission.admitted))

    def inserted(self, at_work: Sequence[JobView]) -> list[JobView]:
        before = [job for job in at_work if job.id in self.admitted]
        return [*before, self.first, *(job for job in at_work if job.id not in self.admitted)]


def _admit(
    fleet: Fleet,
    homes: Homes,
    jobs: Sequence[JobView],
    at_work: Mapping[UUID, bool],
    wanted: Wanted,
    turn: _Turn | None = None,
) -> _Admission:
    admission = _Admission(fleet, homes, at_work, _Book(fleet, homes))
    machines = Division(dict(enumerate(fleet.capacities())))
    reach = {job.id: _reach(fleet, job) for job in jobs}
    for same in equals(jobs):
        standings = Standings(same, at_work, machines, reach, wanted)
        admission.standings.append(standings)
        at_work_first = list(standings.at_work_first())
        if turn is not None and turn.first in same and turn.first.id not in at_work:
            at_work_first = turn.inserted(at_work_first)
            standings.pass_over(turn.first)
        for job in at_work_first:
            admission.enter(job, standings)
        while (waiting := standings.next_waiting()) is not None:
            for claim in standings.claims_before(waiting):
                if admission.book.claim(claim):
                    admission.claimed.append(claim)
                    standings.enter(claim, 1)
            admission.enter(waiting, standings)
        standings.close()
    return admission


def _connected(classes: Collection[int], uses: Mapping[UUID, Collection[int]]) -> set[UUID]:
    """Return who uses any of the classes, or one that a job among those uses, and so on."""
    reached, found, num = set(classes), set[UUID](), -1
    while num < len(found):
        num = len(found)
        for job_id, own in uses.items():
            if job_id not in found and not reached.isdisjoint(own):
                found.add(job_id)
                reached.update(own)
    return found


def _reach(fleet: Fleet, job: JobView) -> frozenset[int]:
    """Return the classes of the machines that count for the job: of its engines, and of a gang or sole training."""
    has_own = not job.has_rollout or job.num_train_machines > 1
    return fleet.reach(job, [Role.ROLLOUT] * job.has_rollout + [Role.TRAIN] * has_own)


def _fits(
    fleet: Fleet,
    homes: Homes,
    staying: Sequence[JobView],
    job: JobView,
    *,
    claimed: Sequence[JobView] = (),
    num_claims: int = 0,
) -> bool:
    """Whether the job's floor, or so many engines more for it, fit beside the floors of those that stay and what was
    `claimed` beside them."""
    book = _Book(fleet, homes)
    if any(book.enter(one) for one in staying):
        return False
    for one in claimed:
        book.claim(one)
    if not num_claims:
        return not book.enter(job)
    return all(book.claim(job) for _ in range(num_claims))


class _Book:
    """The floors entered so far. Engines may be moved between their classes to make room; what has machines for itself
    stays. `_in_turns`: how many machines of which classes must remain for those that train in turns."""

    def __init__(self, fleet: Fleet, homes: Homes) -> None:
        self._fleet = fleet
        self._homes = homes
        self._units: Allocation[Owner] = Allocation(fleet.capacities())
        self._slots: Allocation[UUID] = Allocation(fleet.slots.capacities())
        self.exclusive: dict[Owner, list[int]] = {}
        self._num_exclusive = [0] * len(fleet.classes)
        self._in_turns: dict[Classes, int] = {}
        self._room: dict[Classes, int] = {}  # machines of these classes that no job has for itself
        self._kept: set[int] = set()  # classes where no other job begins to train in turns

    def enter(self, job: JobView) -> tuple[Role, ...]:
        """Enter the job's floor. If roles cannot be filled, enters nothing and returns them."""
        before = dict(self._in_turns)
        lacking = self.reserve(job)
        if lacking:
            self._withdraw(job)
            self._in_turns = before
        return lacking

    def reserve(self, job: JobView) -> tuple[Role, ...]:
        """Enter as much of the job's floor as there is. Returns the roles that cannot be filled."""
        return tuple(role for role in _roles(job) if not self._enter(job, role))

    def claim(self, job: JobView) -> bool:
        """Enter an engine more for a job at work, if there is a machine for it."""
        return self._units.add((job.id, Role.ROLLOUT), self._fleet.classes_for(job, Role.ROLLOUT))

    def keep_for(self, job: JobView, lacking: Collection[Role]) -> None:
        """Let no other job begin to train in turns where the job needs machines for itself: it would never get them,
        since those that train there in turns would be followed by others."""
        if Role.TRAIN in lacking and not job.has_rollout:
            self._kept.update(self._fleet.classes_for(job, Role.TRAIN))

    def has_slot(self, job: JobView) -> bool:
        return self._slots.num_placed(job.id) > 0

    def _enter(self, job: JobView, role: Role) -> bool:
        if role is Role.AGENT:
            slots = self._fleet.slots
            return self._slots.add(job.id, slots.classes_for(job), slots.homes(job))
        owner, classes = (job.id, role), self._fleet.classes_for(job, role)
        if role is Role.ROLLOUT:
            return self._units.add(owner, classes)
        if job.has_rollout:
            # Noted even if there are too few, so that no other job gets those that become free for itself.
            self._in_turns[classes] = max(job.num_train_machines, self._in_turns.get(classes, 0))
            open_classes = tuple(one for one in classes if one not in self._kept) if self._kept else classes
            return self._num_in_turns(open_classes) >= job.num_train_machines
        homes = [number for number in self._homes.of(owner) if number in classes]
        return all(
            self._enter_exclusive(owner, (*homes[place:], *classes))
            for place in range(job.num_train_machines)
        )

    def _enter_exclusive(self, owner: Owner, classes: Sequence[int]) -> bool:
        """Take a machine of the first class that leaves enough to those that train in turns."""
        for number in classes:
            if self._leaves_enough(number) and self._units.add(owner, (number,), is_fixed=True):
                self.exclusive.setdefault(owner, []).append(number)
                self._count_exclusive(number, +1)
                return True
        return False

    def _leaves_enough(self, number: int) -> bool:
        """Whether those that train in turns have enough if a job has one machine more of the class for itself."""
        return all(
            number not in kind or self._num_in_turns(kind) > num for kind, num in self._in_turns.items()
        )

    def _num_in_turns(self, classes: Classes) -> int:
        if classes not in self._room:
            num_exclusive = sum(self._num_exclusive[number] for number in classes)
            self._room[classes] = self._fleet.num_machines(classes) - num_exclusive
        return self._room[classes]

    def _count_exclusive(self, number: int, by: int) -> None:
        self._num_exclusive[number] += by
        for classes in self._room:
            if number in classes:
                self._room[classes] -= by

    def _withdraw(self, job: JobView) -> None:
        for number in list(self._slots.placed(job.id)):
            self._slots.remove(job.id, number)
        for role in Role:
            for number, num in list(self._units.placed((job.id, role)).items()):
                for _ in range(num):
                    self._units.remove((job.id, role), number)
            for number in self.exclusive.pop((job.id, role), ()):
                self._count_exclusive(number, -1)


def _roles(job: JobView) -> list[Role]:
    roles = [Role.ROLLOUT] if job.has_rollout else []
    return [*roles, Role.TRAIN, *([Role.AGENT] if job.has_agents else [])]
