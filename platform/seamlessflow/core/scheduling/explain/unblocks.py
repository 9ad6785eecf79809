"""What would let a waiting job begin, the cheapest first: wait, retag a machine, raise a quota, grant a pool, raise the
priority.

Takes an entry of the queue. Each candidate changes the snapshot, and the scheduler decides on the result: invariant,
what is offered to a job in the queue lets the very next cycle admit it. To wait is offered with a bound if the
scheduler admits the job once its elders' quantum is over, and without one if the fleet could serve the job alone. The
number of trials is limited, because each costs a cycle.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.decisions import MoveJob
from seamlessflow.core.scheduling.eligibility import (
    first_rejection,
    is_outside_pools,
    lacks_devices,
    lacks_engine,
    passing_rejection,
)
from seamlessflow.core.scheduling.explain.edits import snapshot_edited
from seamlessflow.core.scheduling.explain.queue import (
    Lack,
    Queue,
    QueueEntry,
    num_given,
    planned,
    quota_needed,
)
from seamlessflow.core.scheduling.passes.placement import num_in_flight
from seamlessflow.core.scheduling.passes.rotation import OVERDUE_S, QUANTUM_S
from seamlessflow.core.scheduling.plan import FleetPlan
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.labels import is_label
from seamlessflow.core.types.limits import Priority, limits_of
from seamlessflow.core.types.tags import ROLE_TAGS, Role

Number = TypeVar("Number", int, float)
_, MAX_PRIORITY = limits_of(Priority).span
MAX_RETAGS = 6  # trials of one entry with a retagged machine
MAX_TRIALS, MIN_TRIALS = 64, 4  # of one answer
MAX_TRIED_ROWS = 100_000  # machines and jobs that all trials of one answer look at
SHORT_WAIT_S = 120.0  # a wait that is cheaper than any edit


class UnblockKind(StrEnum):
    WAIT = "wait"
    RETAG = "retag"
    QUOTA = "quota"
    GRANT = "grant"
    PRIORITY = "priority"


# What an operator may offer, and what everybody may: the pools of others are not for everybody to see.
EVERY_KIND = frozenset(UnblockKind)
OPEN_KINDS = EVERY_KIND - {UnblockKind.GRANT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblock:
    """One way to let a job begin. `gives_way`: the jobs that lose their machines by it.

    `within_s`: when to expect it, and `at_most_s`: the bound, of a wait; `machine` and `tags`: which tags to add
    where; `value`: the quota or the priority; `pool`: the pool to grant.
    """

    kind: UnblockKind
    gives_way: tuple[JobView, ...] = ()
    within_s: float | None = None
    at_most_s: float | None = None
    machine: MachineView | None = None
    tags: tuple[str, ...] = ()
    value: int | None = None
    pool: str = ""


class Trials:
    """Counts the trials of one answer down. A large fleet gets fewer, because each of its trials costs more."""

    def __init__(self, snapshot: Snapshot) -> None:
        num_rows = len(snapshot.machines) + len(snapshot.jobs) + 1
        self._num_left = min(MAX_TRIALS, max(MIN_TRIALS, MAX_TRIED_ROWS // num_rows))

    @property
    def are_over(self) -> bool:
        return self._num_left <= 0

    def take(self) -> bool:
        """Return whether one more trial is allowed."""
        self._num_left -= 1
        return self._num_left >= 0


def unblocks(
    queue: Queue, entry: QueueEntry, trials: Trials, *, kinds: frozenset[UnblockKind] = EVERY_KIND
) -> tuple[Unblock, ...]:
    """Return what would let the entry's job begin, or work more, the cheapest first."""
    found = _Search(queue, entry, trials)
    makers: dict[UnblockKind, Callable[[], Unblock | None]] = {
        UnblockKind.WAIT: found.wait,
        UnblockKind.RETAG: found.retag,
        UnblockKind.QUOTA: found.quota,
        UnblockKind.GRANT: found.grant,
        UnblockKind.PRIORITY: found.priority,
    }
    offers = [offer for kind, make in makers.items() if kind in kinds and (offer := make()) is not None]
    return tuple(sorted(offers, key=_cost))


def _cost(offer: Unblock) -> int:
    """Return the rank of an offer among others: a short wait, what costs no job anything, a bounded wait, what stops
    other jobs, an unbounded wait."""
    if offer.kind is UnblockKind.WAIT:
        if offer.at_most_s is None:
            return 9
        return 0 if offer.at_most_s <= SHORT_WAIT_S else 5
    return tuple(UnblockKind).index(offer.kind) + (5 if offer.gives_way else 0)


class _Search:
    def __init__(self, queue: Queue, entry: QueueEntry, trials: Trials) -> None:
        self._queue, self._entry, self._trials = queue, entry, trials
        self._plan, self._job, self._snapshot = queue.plan, entry.job, queue.plan.snapshot

    def wait(self) -> Unblock | None:
        job, plan = self._job, self._plan
        if self._entry.lack is Lack.ENGINES:
            return None
        if self._entry.lack is Lack.TURN:
            return Unblock(kind=UnblockKind.WAIT)
        if not self._queue.fits_alone(job):
            return None
        first = plan.floors.reserved_for
        if first is None or first.id != job.id:
            return Unblock(kind=UnblockKind.WAIT)
        peers = [other for other in plan.floors.admitted if other.fleet_priority == job.fleet_priority]
        ahead = sorted({0.0, *(QUANTUM_S - other.admitted_s + 1.0 for other in peers)})
        left_s = self._least(ahead, lambda seconds: _later(self._snapshot, max(seconds, 0.0)))
        if left_s is None:
            return Unblock(kind=UnblockKind.WAIT)
        # Who gives way at its next publication has not published for a while, at most until it is overdue.
        at_most_s = max((left_s or ahead[-1]) + OVERDUE_S, 0.0)
        return Unblock(kind=UnblockKind.WAIT, within_s=max(left_s, 0.0), at_most_s=at_most_s)

    def retag(self) -> Unblock | None:
        if self._entry.lack not in (Lack.FLOOR, Lack.ENGINES) or self._trials.are_over:
            return None
        for machine, tags in sorted(self._retags(), key=_retag_cost)[:MAX_RETAGS]:
            edits = {machine.id: MachineEdit(tags=machine.tags | set(tags))}
            gives_way = self._tried(partial(snapshot_edited, self._snapshot, edits))
            if gives_way is not None:
                return Unblock(kind=UnblockKind.RETAG, machine=machine, tags=tags, gives_way=gives_way)
        return None

    def quota(self) -> Unblock | None:
        if self._entry.lack is not Lack.QUOTA:
            return None
        quota = quota_needed(self._plan, self._job)
        gives_way = self._tried(partial(self._with_project, project_quota=quota))
        return (
            None if gives_way is None else Unblock(kind=UnblockKind.QUOTA, value=quota, gives_way=gives_way)
        )

    def grant(self) -> Unblock | None:
        if self._entry.lack is not Lack.FLOOR:
            return None
        for pool in sorted(self._closed_pools()):
            gives_way = self._tried(partial(self._with_project, pools=self._job.pools | {pool}))
            if gives_way is not None:
                return Unblock(kind=UnblockKind.GRANT, pool=pool, gives_way=gives_way)
        return None

    def priority(self) -> Unblock | None:
        job = self._job
        if self._entry.lack is not Lack.FLOOR:
            return None
        above = sorted(
            {
                one.priority + 1
                for one in self._plan.floors.served
                if job.priority <= one.priority < MAX_PRIORITY
            }
        )
        raised = self._least(above, lambda value: _with_job(self._snapshot, replace(job, priority=value)))
        if raised is None:
            return None
        gives_way = self._tried(partial(_with_job, self._snapshot, replace(job, priority=raised)))
        return (
            None
            if gives_way is None
            else Unblock(kind=UnblockKind.PRIORITY, value=raised, gives_way=gives_way)
        )

    def _tried(self, edit: Callable[[], Snapshot]) -> tuple[JobView, ...] | None:
        """Let the scheduler decide on an edited snapshot. Returns the jobs that give way, or None if it does not
        help."""
        if not self._trials.take():
            return None
        edited = edit()
        if self._job.state is JobState.QUEUED and not _begins(edited, self._job):
            return None
        after = planned(edited)
        if not self._has_more(after):
            return None
        return tuple(one for one in self._plan.floors.admitted if not after.is_served(one))

    def _has_more(self, after: FleetPlan) -> bool:
        job, plan = self._job, self._plan
        if self._entry.lack is Lack.ENGINES:
            return num_given(after, job, Role.ROLLOUT) > num_given(plan, job, Role.ROLLOUT)
        return job.id not in after.floors.missing

    def _least(self, values: Sequence[Number], edited: Callable[[Number], Snapshot]) -> Number | None:
        """Return the least value with which the job begins, by halving; None if it begins with none of them."""
        if not values or self._tried(partial(edited, values[-1])) is None:
            return None
        low, high = 0, len(values) - 1
        while low < high:
            middle = (low + high) // 2
            if self._tried(partial(edited, values[middle])) is None:
                low = middle + 1
            else:
                high = middle
        return values[high]

    def _retags(self) -> Iterator[tuple[MachineView, tuple[str, ...]]]:
        """Yield one machine of each class with the tags that it lacks for one of the roles, or for all of them."""
        missing = self._plan.floors.missing.get(self._job.id, (Role.ROLLOUT,))
        for one in self._plan.fleet.classes:
            machine = min(one.machines, key=lambda m: (m.phase is not None, num_in_flight(m), m.name))
            if one.only is not None or self._is_unfit(machine, missing):
                continue
            options = {machine.missing(self._job.tags_of(role)) for role in missing}
            options.add(frozenset().union(*options))
            givable = (tags for tags in options if tags and not any(map(is_label, tags)))
            yield from ((machine, tuple(sorted(tags))) for tags in givable)

    def _is_unfit(self, machine: MachineView, roles: Sequence[Role]) -> bool:
        filters = (is_outside_pools, lacks_engine, lacks_devices)
        return any(first_rejection(filters, machine, self._job, role) is not None for role in roles)

    def _closed_pools(self) -> set[str]:
        """Return the pools that the job may not use and that have a usable machine with the tags it lacks."""
        job, lacking = self._job, self._plan.floors.missing[self._job.id]
        wanted = [job.tags_of(role) for role in lacking]
        return {
            machine.pool
            for machine in (one.example for one in self._plan.fleet.classes)
            if machine.pool not in job.pools
            and any(not machine.missing(tags) for tags in wanted)
            and passing_rejection(machine, job, lacking[0]) is None
        }

    def _with_project(self, **changes: object) -> Snapshot:
        """Return the snapshot with a change of all jobs of the job's project."""
        project = self._job.project_id
        jobs = tuple(
            replace(job, **changes) if job.project_id == project else job  # type: ignore[arg-type]
            for job in self._snapshot.jobs
        )
        return replace(self._snapshot, jobs=jobs)


def _retag_cost(candidate: tuple[MachineView, tuple[str, ...]]) -> tuple[int, int, bool, str]:
    """Roles are for people to give; other tags say what a machine is, so they come last."""
    machine, tags = candidate
    return (len(set(tags) - ROLE_TAGS), len(tags), machine.phase is not None, machine.name)


def _begins(snapshot: Snapshot, job: JobView) -> bool:
    """Whether the next cycle admits a job of the queue."""
    moves = [one for one in decide(snapshot).decisions if isinstance(one, MoveJob) and one.job_id == job.id]
    return any(move.to_state is JobState.STARTING for move in moves)


def _with_job(snapshot: Snapshot, job: JobView) -> Snapshot:
    return replace(snapshot, jobs=tuple(job if one.id == job.id else one for one in snapshot.jobs))


def _later(snapshot: Snapshot, seconds: float) -> Snapshot:
    """Return the snapshot after some time in which the jobs at work went on, and have just published."""
    aged: dict[UUID, JobView] = {
        job.id: replace(
            job,
            waiting_s=job.waiting_s + seconds if job.state is JobState.QUEUED else job.waiting_s,
            admitted_s=job.admitted_s + seconds,
            published_s=0.0,
        )
        for job in snapshot.jobs
    }
    return replace(snapshot, jobs=tuple(aged.values()))
