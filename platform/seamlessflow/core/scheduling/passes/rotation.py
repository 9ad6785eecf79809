"""Which jobs at work give way to one that waits, right after they have published.

Takes what was admitted (`Admitted`). A job without a use for its machines gives way at once (`unused`), and so does one
of a lower priority to another job of its project. One of another project gives way at its next publication if its
project has so much more by its weight than the project of the one that waits that this stays true, or becomes equal,
once the machines have changed hands; or if its project has more than its part, and the one that waits is owed a machine
(`arrears`: its project lacked its part for longer than a change of hands is worth). Else a job gives way once its
quantum is over: first those of the same project, then those of others, if they have no less or if nothing else helps.
Of the projects' first jobs that wait, those that have waited for longer than that come first.

Invariants: a change of hands never leaves its giver with less by weight than its taker, except for what is owed, and is
not taken back by the same rule; the smallest set that suffices gives way, or none.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.passes.standings import Standings, machines_of_floor
from seamlessflow.core.scheduling.passes.unused import yields_to
from seamlessflow.core.scheduling.snapshot import JobView

QUANTUM_S = 900.0  # a job at work for longer gives way to one that waits
PUBLISHED_LATELY_S = 2.0  # how long after a publication a job counts as having just published
OVERDUE_S = 300.0  # past its quantum by this much, a job gives way without a publication
MAX_ROTATED = 16  # jobs that may give way to one


class Admitted(Protocol):
    @property
    def admitted(self) -> Sequence[JobView]: ...
    @property
    def firsts(self) -> Mapping[UUID, JobView]: ...
    @property
    def standings(self) -> Sequence[Standings]: ...
    def contending(self, first: JobView) -> Collection[UUID]: ...
    def claimed_before(self, first: JobView) -> Sequence[JobView]: ...


class Fits(Protocol):
    def __call__(
        self,
        staying: Sequence[JobView],
        job: JobView,
        *,
        claimed: Sequence[JobView] = (),
        num_claims: int = 0,
    ) -> bool: ...


def rotating(found: Admitted, fits: Fits, at_work: Collection[UUID]) -> dict[UUID, JobView]:
    """Return the jobs that should stop now, each with the one that its machines are for."""
    for standings in found.standings:
        ids = {job.id for job in standings.jobs}
        own = [job for job in found.admitted if job.id in at_work and job.id in ids]
        for first in sorted(found.firsts.values(), key=_longest_first):
            if first.id in ids:
                leaving = _leaving(_Search(found, standings, fits, own, first))
                if leaving:
                    return dict.fromkeys(leaving, first)
        for project, claims in standings.all_claims.items():
            if rotated := _for_claims(found.admitted, standings, own, project, claims, fits):
                return rotated
    return {}


def _longest_first(first: JobView) -> float:
    """Order those that have waited for longer than a turn lasts, so that the turns of another project, whose jobs
    follow each other, do not pass them by."""
    return -first.waiting_s if first.waiting_s > QUANTUM_S + OVERDUE_S else 0.0


def _for_claims(
    admitted: Sequence[JobView],
    standings: Standings,
    own: Sequence[JobView],
    project: UUID,
    claims: Sequence[JobView],
    fits: Fits,
) -> dict[UUID, JobView]:
    """Return who gives way to a job at work that is owed an engine and finds no machine beside the floors."""
    claim = next((job for job in claims if job.is_owed_floor), None)
    if claim is None:
        return {}
    num_floors = sum(machines_of_floor(job) for job in admitted if job.project_id == project)
    num_lacking = standings.of_project[project].entitlement - num_floors
    num = 1
    while num < num_lacking and num < claims.count(claim) and fits(admitted, claim, num_claims=num):
        num += 1
    if num_lacking <= num - 1 or fits(admitted, claim, num_claims=num):
        return {}
    for giver in _richest_first(standings, own):
        is_able = giver.state is not JobState.STARTING and may_stop(giver) and _excess(standings, giver) > 0
        if giver.project_id != project and not giver.is_owed_floor and is_able:
            staying = [job for job in admitted if job.id != giver.id]
            if fits(staying, claim, num_claims=num):
                return {giver.id: claim}
    return {}


def gives_way_now(standings: Standings, giver: JobView, first: JobView, num_given: int = 0) -> bool:
    """Whether a job of another project gives way at its next publication, after `num_given` machines of its project."""
    if giver.project_id == first.project_id or giver.state is JobState.STARTING:
        return False
    giving, taking = standings.of_project[giver.project_id], standings.of_project[first.project_id]
    num = machines_of_floor(first)
    left = -num_given - machines_of_floor(giver)
    if taking.level(num) <= giving.level(left):
        return True
    is_over = giving.num_taken - num_given > giving.entitlement
    return (
        first.is_owed_floor
        and not giver.is_owed_floor
        and is_over
        and taking.num_taken + num < taking.entitlement + 1
    )


def may_stop(job: JobView) -> bool:
    is_overdue = job.admitted_s > QUANTUM_S + OVERDUE_S
    return is_overdue or job.published_s <= PUBLISHED_LATELY_S or job.state is JobState.STARTING


class _Search:
    """For the jobs that give way to one: `own` are those at work of the same priority across projects."""

    def __init__(
        self, found: Admitted, standings: Standings, fits: Fits, own: Sequence[JobView], first: JobView
    ) -> None:
        contending = found.contending(first)
        self.standings, self.first = standings, first
        self.own = [job for job in own if job.id in contending]
        self._admitted, self._claimed, self._fits = found.admitted, found.claimed_before(first), fits

    def suffices(self, leaving: Collection[UUID]) -> bool:
        """Whether the first fits once those have left. Engines that others claimed before it remain theirs: without
        them it might seem to fit beside all, and no job would give way."""
        staying = [job for job in self._admitted if job.id not in leaving]
        claimed = [job for job in self._claimed if job.id not in leaving]
        return self._fits(staying, self.first, claimed=claimed)

    def candidates(self) -> Iterator[JobView]:
        """Yield who may give way, in the order in which they do."""
        unused = [job for job in self.own if yields_to(job, self.first)]
        yield from sorted(unused, key=lambda job: (-job.admitted_s, job.order, job.id))
        lower = [job for job in self.own if is_before(self.first, job) and job not in unused]
        yield from sorted(lower, key=lambda job: (job.priority, -job.order, job.id))
        seen = {job.id for job in (*unused, *lower)}
        if (alone := self._suffices_alone(seen)) is not None:
            yield alone
            return
        num_given = Counter[UUID]()
        for job in _richest_first(self.standings, self.own):
            if job.id not in seen and gives_way_now(
                self.standings, job, self.first, num_given[job.project_id]
            ):
                num_given[job.project_id] += machines_of_floor(job)
                seen.add(job.id)
                yield job
        past = sorted(
            (job for job in self.own if job.admitted_s > QUANTUM_S and job.id not in seen),
            key=lambda job: (-job.admitted_s, job.order, job.id),
        )
        yield from (job for job in past if self._is_peer(job))
        yield from (job for job in past if job.project_id != self.first.project_id and self._may_take(job))

    def _suffices_alone(self, leaving: set[UUID]) -> JobView | None:
        """Return one of another project that suffices with those: one that does not help is no reason to spare it."""
        able = (
            job
            for job in _richest_first(self.standings, self.own)
            if job.id not in leaving and gives_way_now(self.standings, job, self.first)
        )
        return next((job for job in islice(able, MAX_ROTATED) if self.suffices({*leaving, job.id})), None)

    def _is_peer(self, job: JobView) -> bool:
        return job.project_id == self.first.project_id and job.priority <= self.first.priority

    def _may_take(self, giver: JobView) -> bool:
        """Whether a job of another project gives way after its quantum: it has no less, or only that helps."""
        of_project = self.standings.of_project
        if of_project[giver.project_id].level() >= of_project[self.first.project_id].level(1):
            return True
        return not self.suffices({job.id for job in self.own if self._is_peer(job)})


def _leaving(search: _Search) -> list[UUID]:
    """Return the jobs that should stop now so that the first fits; none if that would not suffice."""
    order: list[JobView] = []
    leaving: set[UUID] = set()
    for job in search.candidates():
        order.append(job)
        leaving.add(job.id)
        if search.suffices(leaving):
            break
        if len(order) == MAX_ROTATED:
            return []
    else:
        return []
    for job in order:  # as few as suffice
        if search.suffices(leaving - {job.id}):
            leaving.discard(job.id)
    return [job.id for job in order if job.id in leaving and (may_stop(job) or _stops_now(job, search.first))]


def is_before(first: JobView, job: JobView) -> bool:
    """Whether `first` has a higher priority than a job of its project."""
    return first.project_id == job.project_id and first.priority > job.priority


def _stops_now(job: JobView, first: JobView) -> bool:
    """Whether the job gives way without a publication."""
    return yields_to(job, first) or is_before(first, job)


def _richest_first(standings: Standings, own: Sequence[JobView]) -> list[JobView]:
    """Return the jobs, those of the project with the most by its weight first: there the lowest priority, then those
    that may stop now, then the longest at work."""
    return sorted(
        own,
        key=lambda job: (
            -standings.of_project[job.project_id].level(), job.priority, not may_stop(job), -job.admitted_s,
            job.order, job.id,
        ),
    )  # fmt: skip


def _excess(standings: Standings, job: JobView) -> float:
    standing = standings.of_project[job.project_id]
    return standing.num_taken - standing.entitlement
