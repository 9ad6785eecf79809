"""How many machines of which class each admitted job should have now: the second of the scheduler's passes.

Takes the admitted jobs, in the order in which they are served, and what each could use. First comes training,
which nothing can replace; then one engine each; then the jobs of the highest priority across projects share what is
left by weighted max-min fairness, first among projects, then in a project by priority and weight; then the jobs of the
next priority. What is shared is cost: a machine counts what an operator said, or 1. No job gets more than it could use,
and no project more machines than its quota; what is left is lent to others. Then on-policy jobs lend one another up to
half of their engines, so that one batch ends after the other instead of all at once. At last, gangs that are about to
train get machines that no job needs at this moment.

Invariants: a machine is given once; a job gets no machine that it may not use; no job with unmet demand has less, in
proportion to its weight, than one of the same priority whose machine it could use, give or take one machine; what
it lends, it lends to batches that end before its own, and it keeps half.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.passes.allocation import Allocation
from seamlessflow.core.scheduling.passes.demand import Demand
from seamlessflow.core.scheduling.passes.exchanges import Stay, places_exchange
from seamlessflow.core.scheduling.passes.fleet import Classes, Fleet
from seamlessflow.core.scheduling.passes.floors import Floors
from seamlessflow.core.scheduling.passes.homes import Homes
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Owner
from seamlessflow.core.types.tags import Role

# A job keeps its engines divided by this when others finish their batches first. It bounds what the nearest batch may
# take, however many short batches come.
KEPT_PART = 2
# Of a machine: between one that owes and one that is owed it makes one, and else it decides who gets the odd one.
OWED_PART = 0.5


@dataclass(slots=True)
class _Project:
    """What a project has so far. `cost`: of engines and trainers; `num_held`: machines, with those of agents, which its
    quota counts but its share does not; `unit`: what a usual machine costs; `owed`: a machine that its jobs are owed
    or owe (`arrears`)."""

    weight: float
    quota: int | None
    unit: float
    owed: int
    cost: float = 0.0
    num_held: int = 0


@dataclass(slots=True)
class _Account:
    """What a job has so far. `cost`: of engines and trainers; `homes`: the classes where its engines are now."""

    job: JobView
    project: _Project
    demand: Demand
    engines: Owner
    engine_classes: Classes
    homes: list[int]
    cost: float = 0.0
    num_engines: int = 0

    @property
    def has_unmet(self) -> bool:
        return self.num_engines < self.demand.rollout

    @property
    def level(self) -> float:
        """How much the job would have with one machine more, by its weight. What it is owed does not count."""
        return (self.cost + self.project.unit * (1 - OWED_PART * min(self.job.owed, 1))) / self.job.weight

    @property
    def rank(self) -> tuple[int, float]:
        """Its place among the jobs of its project."""
        return (-self.job.priority, self.level)

    @property
    def project_level(self) -> float:
        return (
            self.project.cost + self.project.unit * (1 - OWED_PART * self.project.owed)
        ) / self.project.weight

    @property
    def is_in_batch(self) -> bool:
        """Whether all its turns belong to one batch, which it can train only once the last of them has ended."""
        is_on_policy = self.job.staleness_bound.num_batches_ahead == 1
        is_counted = self.job.state is JobState.RUNNING and self.job.engines_wanted is not None
        return is_on_policy and is_counted and self.num_engines > 0

    def may_have(self, num: int) -> bool:
        return self.project.quota is None or self.project.num_held + num <= self.project.quota

    def count(self, num: int, cost: float) -> None:
        """Count machines, and what they cost together."""
        self.count_cost(cost)
        self.project.num_held += num

    def count_cost(self, cost: float) -> None:
        self.cost += cost
        self.project.cost += cost


@dataclass(slots=True)
class Shares:
    """Gives machines out. `allocation`: units by (job, role) and class; `unmet_training`: the jobs whose batch is due
    and who wait for machines on which others train."""

    fleet: Fleet
    homes: Homes
    floors: Floors
    demands: Mapping[UUID, Demand]
    allocation: Allocation[Owner] = field(init=False)
    unmet_training: list[JobView] = field(default_factory=list)
    _costs: list[float] = field(init=False)
    _accounts: dict[UUID, _Account] = field(init=False)

    def __post_init__(self) -> None:
        self.allocation = Allocation(self.fleet.capacities())
        self._costs = [one.cost for one in self.fleet.classes]
        unit, projects = self.fleet.usual_cost, dict[UUID, _Project]()
        self._accounts = {}
        owed = _owed_by_project(self.floors.served)
        for job in self.floors.served:
            project = projects.setdefault(
                job.project_id, _Project(job.project_weight, job.project_quota, unit, owed[job.project_id])
            )
            self._accounts[job.id] = self._open(job, project)

    def _open(self, job: JobView, project: _Project) -> _Account:
        owner, classes = (job.id, Role.ROLLOUT), self.fleet.classes_for(job, Role.ROLLOUT)
        homes = [number for number in self.homes.of(owner) if number in classes]
        return _Account(job, project, self.demands[job.id], owner, classes, homes)

    def give(self) -> None:
        accounts = self._accounts.values()
        for account in accounts:
            self._add_exclusive(account)
        in_turns = [one for one in accounts if one.job.has_rollout and one.demand.train]
        for account in _by_priority(sorted(in_turns, key=self._training_order)):
            if not self._add_trainers(account):
                self.unmet_training.append(account.job)
        in_order = sorted(accounts, key=self._engine_order)
        whole = [one for one in in_order if one.job.id not in self.floors.missing]
        for account in (*_by_priority(whole), *_by_priority(in_order[len(whole) :])):
            if account.demand.rollout:
                self._add_engine(account)
        by_priority: dict[int, list[_Account]] = defaultdict(list)
        for account in accounts:
            by_priority[account.job.fleet_priority].append(account)
        for priority in sorted(by_priority, reverse=True):
            self._fill(by_priority[priority])
            for equals in sorted({one.job.priority for one in by_priority[priority]}, reverse=True):
                self._finish_batches(one for one in by_priority[priority] if one.job.priority == equals)
        for account in accounts:
            self._add_extra_trainers(account)
        places_exchange(self.allocation, [self._stay(one) for one in accounts], self._costs)

    def _stay(self, account: _Account) -> Stay[Owner]:
        homes = (one for one in self.homes.of(account.engines) if one in account.engine_classes)
        return Stay(account.engines, account.engine_classes, Counter(homes))

    def _num_missing(self, account: _Account, number: int) -> int:
        """Return how many engines the job has in a class now beyond what it was given there so far."""
        num_now = self.homes.of(account.engines).count(number)
        return num_now - self.allocation.placed(account.engines).get(number, 0)

    def take_next(self, number: int, training: JobView) -> tuple[JobView, Role] | None:
        """Return who gets a machine of a class once `training` has trained there; None if no job needs it."""
        for job in self.unmet_training:
            if number in self.fleet.classes_for(job, Role.TRAIN):
                self.unmet_training.remove(job)
                return job, Role.TRAIN
        wanting = [one for one in self._accounts.values() if _could_use(one, number, training)]
        if not wanting:
            return None
        self._accounts[training.id].count(
            -1, -self._costs[number]
        )  # its levels are what it has once its turn is over
        account = min(
            wanting,
            key=lambda one: (-one.job.fleet_priority, one.project_level, -one.job.priority, one.level),
        )
        self._accounts[training.id].count(1, self._costs[number])
        account.count(1, self._costs[number])
        account.num_engines += 1
        return account.job, Role.ROLLOUT

    def level(self, job: JobView) -> tuple[float, float]:
        """Return how much the job's project and the job would have with one machine more, by their weights."""
        account = self._accounts[job.id]
        return account.project_level, account.level

    def unmet_engines(self) -> dict[UUID, int]:
        """Return how many engines more each job could use, for those that may have another one."""
        return {
            account.job.id: account.demand.rollout - account.num_engines
            for account in self._accounts.values()
            if account.has_unmet and account.may_have(1)
        }

    def add_spare(self, job: JobView, machine: MachineView) -> bool:
        """Count a machine that no job needs and that the job gets meanwhile. False if its quota is reached."""
        account = self._accounts[job.id]
        if not account.may_have(1):
            return False
        account.count(1, machine.cost)
        return True

    def add_spares(self, job: JobView, machines: Sequence[MachineView], *, least: int) -> list[MachineView]:
        """Count machines that no job needs and that the job gets together meanwhile: as many as its quota allows, in
        this order, or none if those would be fewer than `least`."""
        account = self._accounts[job.id]
        if len(machines) < least or not account.may_have(least):
            return []
        return [machine for machine in machines if self.add_spare(job, machine)]

    def has_enough_engines(self, job: JobView) -> bool:
        """Whether the job got an engine for all turns that run or wait."""
        return not self._accounts[job.id].has_unmet

    def may_add_agents(self, job: JobView) -> bool:
        """Whether one machine more may run the job's agents, by the quota of its project."""
        return self._accounts[job.id].may_have(1)

    def add_agents(self, job: JobView) -> None:
        """Count one machine more that runs the job's agents."""
        self._accounts[job.id].project.num_held += 1

    def _training_order(self, account: _Account) -> tuple[int, bool, float]:
        job = account.job
        return (-job.fleet_priority, not self.homes.is_training(job), -job.due_age_s)

    def _engine_order(self, account: _Account) -> tuple[bool, int, int]:
        """Who is owed a machine has its first engine before others, so that no job is for ever the one without."""
        job = account.job
        return (job.id in self.floors.missing, -job.fleet_priority, -min(job.owed, 1))

    def _add_exclusive(self, account: _Account) -> None:
        owner = (account.job.id, Role.TRAIN)
        for number in self.floors.exclusive.get(owner, ()):
            self.allocation.add(owner, (number,), is_fixed=True)
            account.count(1, self._costs[number])
        account.project.num_held += int(account.job.id in self.floors.with_agents)

    def _add_trainers(self, account: _Account) -> bool:
        job = account.job
        classes = self.fleet.classes_for(job, Role.TRAIN)
        homes = [number for number in self.homes.of_trainer(job) if number in classes]
        # A gang keeps its size while it trains; if that does not fit, it ends its turn for a smaller one.
        for num in sorted({account.demand.train, job.num_train_machines}, reverse=True):
            if not account.may_have(num):
                continue
            if self.allocation.add_all((job.id, Role.TRAIN), classes, num, homes):
                placed = self.allocation.placed((job.id, Role.TRAIN))
                account.count(num, sum(units * self._costs[number] for number, units in placed.items()))
                return True
        return False

    def _add_extra_trainers(self, account: _Account) -> None:
        """Add machines that are left to those that train together: when they begin, or as many as they are now."""
        job, owner = account.job, (account.job.id, Role.TRAIN)
        if not job.extra_train_machines:
            return
        num_placed, num_now = self.allocation.num_placed(owner), len(self.homes.of(owner))
        if num_placed < job.num_train_machines:
            return
        num_wanted = num_now or job.num_train_machines + job.extra_train_machines
        classes = self.fleet.classes_for(job, Role.TRAIN)
        for number in (*self.homes.of_trainer(job), *classes):
            while num_placed < num_wanted and number in classes and self.allocation.free[number]:
                if not account.may_have(1):
                    return
                self.allocation.add(owner, (number,), is_fixed=True)
                account.count(1, self._costs[number])
                num_placed += 1

    def _finish_batches(self, accounts: Iterable[_Account]) -> None:
        """Let on-policy jobs whose batches end first have engines of those that end later, which keep half of theirs.

        If all had equal parts, their batches would end late and at once, and then machines would wait for the steps.
        """
        in_order = sorted((one for one in accounts if one.is_in_batch), key=self._batch_order)
        spare = {one.job.id: one.num_engines - max(one.num_engines // KEPT_PART, 1) for one in in_order}
        lenders = [(place, one) for place, one in enumerate(in_order) if spare[one.job.id]]
        for place, first in enumerate(in_order):
            number = len(lenders) - 1
            while first.has_unmet and number >= 0 and lenders[number][0] > place:
                last = lenders[number][1]
                wanted = min(first.demand.rollout - first.num_engines, spare[last.job.id])
                spare[last.job.id] -= self._lend_engines(last, first, wanted)
                if not spare[last.job.id]:
                    lenders.pop(number)
                number -= 1

    def _batch_order(self, account: _Account) -> tuple[int, int, int]:
        """The batch with the fewest turns left comes first; among equals, that of the job with the most engines."""
        return (account.demand.rollout, -len(self.homes.of(account.engines)), account.job.order)

    def _lend_engines(self, last: _Account, first: _Account, num: int) -> int:
        """Give up to `num` engines of one job to another; returns how many. They are taken where the one has fewer than
        it works on now and the other more. Levels stay those of fair shares; quotas count all machines."""
        if first.project is not last.project and first.project.quota is not None:
            num = min(num, first.project.quota - first.project.num_held)
        placed = self.allocation.placed(last.engines)
        common = [one for one in placed if one in first.engine_classes]
        common.sort(key=lambda one: (-self._num_missing(first, one), self._num_missing(last, one), one))
        num_left = num
        for number in common:
            for _ in range(min(num_left, placed.get(number, 0))):
                self.allocation.remove(last.engines, number)
                self.allocation.add(first.engines, first.engine_classes, (number,))
                num_left -= 1
        num_lent = num - num_left
        for account, change in ((last, -num_lent), (first, num_lent)):
            account.num_engines += change
            account.project.num_held += change
        return num_lent

    def _add_engine(self, account: _Account) -> bool:
        if not account.may_have(1):
            return False
        home = (account.homes.pop(),) if account.homes else ()
        number = self.allocation.place(account.engines, account.engine_classes, home)
        if number is None:
            return False
        account.count(1, self._costs[number])
        account.num_engines += 1
        self._note_moves()
        return True

    def _note_moves(self) -> None:
        """Count what engines cost where they were moved to make room."""
        for (job_id, _), before, after in self.allocation.moved:
            self._accounts[job_id].count_cost(self._costs[after] - self._costs[before])
        self.allocation.moved.clear()

    def _fill(self, accounts: Iterable[_Account]) -> None:
        """Give engines one by one to the project with the least, and there to the job with the highest priority, and
        among those to the one with the least."""
        own: dict[int, list[tuple[tuple[int, float], int, _Account]]] = defaultdict(list)
        for place, account in enumerate(accounts):
            if account.has_unmet:
                heapq.heappush(own[id(account.project)], (account.rank, place, account))
        projects = [(waiting[0][2].project_level, waiting[0][1], waiting) for waiting in own.values()]
        heapq.heapify(projects)
        while projects:
            _, place, waiting = projects[0]
            _, order, account = waiting[0]
            if self._add_engine(account) and account.has_unmet:
                heapq.heapreplace(waiting, (account.rank, order, account))
            else:
                heapq.heappop(waiting)
            if waiting:
                heapq.heapreplace(projects, (waiting[0][2].project_level, place, waiting))
            else:
                heapq.heappop(projects)


def _by_priority(accounts: Iterable[_Account]) -> list[_Account]:
    """Return the accounts with those of each project at the places of that project, the highest priority first."""
    own: dict[int, deque[_Account]] = defaultdict(deque)
    in_order = list(accounts)
    for account in sorted(in_order, key=lambda one: -one.job.priority):
        own[id(account.project)].append(account)
    return [own[id(account.project)].popleft() for account in in_order]


def _owed_by_project(jobs: Iterable[JobView]) -> dict[UUID, int]:
    """Return the machines that the jobs of each project are owed together, at most one machine."""
    owed: dict[UUID, int] = defaultdict(int)
    for job in jobs:
        owed[job.project_id] += min(job.owed, 1)
    return {project: max(-1, min(num, 1)) for project, num in owed.items()}


def _could_use(account: _Account, number: int, training: JobView) -> bool:
    wanted = account.demand.rollout_after if account.job is training else account.demand.rollout
    return account.num_engines < wanted and account.may_have(1) and number in account.engine_classes
