"""Rules when deciding again would decide nothing new.

Takes a snapshot for which nothing had to be done; returns until when an equal one needs nothing either. Equal
snapshots differ in ages only, so a plan can change only when an age passes one of the limits that the rules know. All
limits are taken to apply to all phases: that decides a few times too often, and never too late. Invariant, which a
property test holds: the plan of a snapshot stays the same for `quiet_s`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from seamlessflow.core.scheduling.blame.health import DRAIN_LIMIT_S, START_LIMIT_S, suspicion_s
from seamlessflow.core.scheduling.blame.judging import TRIED_S, age_limits_s
from seamlessflow.core.scheduling.evidence import PROVEN_S
from seamlessflow.core.scheduling.passes.gangs import GATHER_LIMIT_S, TOLD_AFTER_S
from seamlessflow.core.scheduling.passes.multiplexing import EMPTY_TURN_GRACE_S, late_after_s
from seamlessflow.core.scheduling.passes.placement import HOLD_HAND_OVERS, MOVE_PATIENCE_S
from seamlessflow.core.scheduling.passes.rotation import OVERDUE_S, PUBLISHED_LATELY_S, QUANTUM_S
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot

_PHASE_LIMITS_S = (
    TOLD_AFTER_S, EMPTY_TURN_GRACE_S, PROVEN_S, GATHER_LIMIT_S, DRAIN_LIMIT_S, START_LIMIT_S,
)  # fmt: skip
_FAILURE_LIMITS_S = tuple(sorted(set(age_limits_s())))


@dataclass(frozen=True, slots=True)
class Quiet:
    """A snapshot for which nothing had to be done, and until when that holds, in monotonic seconds."""

    snapshot: Snapshot
    until_s: float

    def covers(self, snapshot: Snapshot, now_s: float) -> bool:
        return now_s < self.until_s and snapshot == self.snapshot


def quiet_s(snapshot: Snapshot) -> float:
    """Return for how long the plan of this snapshot stays the same if nothing but time passes."""
    return min(_ahead(snapshot), default=float("inf"))


def _ahead(snapshot: Snapshot) -> Iterator[float]:
    hold_s = HOLD_HAND_OVERS * max((job.hand_over_s for job in snapshot.jobs), default=0.0)
    for machine in snapshot.machines:
        yield from _ahead_of_machine(machine, hold_s)
    for job in snapshot.jobs:
        yield from _ahead_of_job(job)
    for failure in snapshot.failures:
        yield from (limit_s - failure.age_s for limit_s in _FAILURE_LIMITS_S if failure.age_s <= limit_s)


def _ahead_of_machine(machine: MachineView, hold_s: float) -> Iterator[float]:
    """A machine that falls silent is no longer equal to itself, so only what silence leads to counts here."""
    quarantine = machine.quarantine
    if quarantine is not None:
        limits_s = (quarantine.backoff_s, quarantine.backoff_s + TRIED_S)
        yield from (limit_s - quarantine.age_s for limit_s in limits_s if quarantine.age_s <= limit_s)
    if not machine.phases:
        return
    if not machine.is_healthy and (left_s := suspicion_s(machine) - machine.unheard_s) >= 0.0:
        yield left_s
    for phase in machine.phases:
        yield from (limit_s - phase.age_s for limit_s in (*_PHASE_LIMITS_S, hold_s) if phase.age_s <= limit_s)


def _ahead_of_job(job: JobView) -> Iterator[float]:
    for age_s, limits_s in (
        (job.due_age_s, (late_after_s(job), MOVE_PATIENCE_S)),
        (job.admitted_s, (QUANTUM_S, QUANTUM_S + OVERDUE_S)),
        (job.published_s, (PUBLISHED_LATELY_S,)),
    ):
        yield from (limit_s - age_s for limit_s in limits_s if 0.0 < age_s <= limit_s)
