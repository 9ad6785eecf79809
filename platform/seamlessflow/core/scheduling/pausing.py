"""What a pausing job gives to others before its last episodes have ended.

A job that pauses keeps its engines so that its agents can finish their episodes. If other jobs want more engines than
they have, it keeps one: turns that leave the other engines go on there. Invariants: a pausing job whose agents still
work keeps an engine; it loses no machine that no job wants.
"""

from collections.abc import Iterator, Sequence

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.decisions import DrainPhase
from seamlessflow.core.scheduling.eligibility import KEEP_FILTERS, first_rejection
from seamlessflow.core.scheduling.job_ends import ending_of
from seamlessflow.core.scheduling.passes.hand_overs import hand_over
from seamlessflow.core.scheduling.plan import FleetPlan
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView
from seamlessflow.core.types.tags import Role


def pausing_drains(plan: FleetPlan) -> Iterator[DrainPhase]:
    """Yield hand-overs of engines that others want, those with the fewest requests first."""
    unmet = plan.shares.unmet_engines()
    for job in plan.snapshot.jobs if unmet else ():
        ending = ending_of(job)
        if ending is None or ending.to is not JobState.PAUSED:
            continue
        for machine, phase in _spare_engines(plan.snapshot.live_phases(job.id)):
            taker = next(
                (one for one in plan.floors.served if unmet.get(one.id) and _may_use(machine, one)), None
            )
            if taker is not None:
                unmet[taker.id] -= 1
                yield hand_over(taker, Role.ROLLOUT, machine, phase, reason="its job pauses")


def _spare_engines(live: Sequence[tuple[MachineView, PhaseView]]) -> list[tuple[MachineView, PhaseView]]:
    """Return all but the busiest of the engines that serve, the least busy first."""
    serving = [one for one in live if one[1].role is Role.ROLLOUT and not one[1].is_leaving]
    return sorted(serving, key=lambda one: (one[1].num_in_flight, one[0].name))[:-1]


def _may_use(machine: MachineView, job: JobView) -> bool:
    return first_rejection(KEEP_FILTERS, machine, job, Role.ROLLOUT) is None
