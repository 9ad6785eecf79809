"""Which machines roll out much slower than the others of their job.

Takes how many tokens each engine sampled and for how many seconds it was full meanwhile: only then does its speed show,
whatever the lengths of turns, the ends of batches or the number of sessions. What leaves is the pace of each phase,
compared with the machines that do the same: they roll out for the same job and have the same tags and pool, so that
unlike hardware, which tags distinguish, is not compared. The pace of a phase with several engines is their mean.
`judging` decides what follows.

Invariant: a phase has a pace only if it and at least three others have been full for a minute each.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.job_ends import ending_of
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.passes.floors import floors_admit
from seamlessflow.core.scheduling.passes.homes import Homes
from seamlessflow.core.scheduling.snapshot import LivePhase, MachineView, PaceView, PhaseView, Snapshot
from seamlessflow.core.types.labels import hardware_of
from seamlessflow.core.types.tags import Role

FULL_S = 60.0  # an engine that was full for less says nothing yet
WARM_UP_S = 60.0  # nor does one that has been active for less
MIN_OTHERS = 3
SLOW_SHARE = 0.5  # of the median rate of the others
Sampled = tuple[float, float]  # tokens, and the seconds in which the engine was full meanwhile


def with_paces(machines: Sequence[MachineView], sampled: Mapping[UUID, Sampled]) -> tuple[MachineView, ...]:
    """Return the machines with the paces that a rule looks at. `sampled`: by phase, of all gateways together."""
    alike: dict[object, list[tuple[float, UUID]]] = defaultdict(list)
    for machine in machines if sampled else ():
        phase = machine.phase
        if phase is not None and phase.id in sampled and _is_measurable(phase):
            num_tokens, full_s = sampled[phase.id]
            if full_s >= FULL_S:
                hardware = (machine.tags, hardware_of(machine.labels))
                alike[phase.job_id, hardware, machine.pool].append((num_tokens / full_s, machine.id))
    paces = {machine_id: pace for rates in alike.values() for machine_id, pace in _paces(rates)}
    return tuple(
        _with_pace(machine, pace)
        if (pace := paces.get(machine.id)) is not None and _matters(machine, pace)
        else machine
        for machine in machines
    )


def stragglers(snapshot: Snapshot) -> list[LivePhase]:
    """Return the machines that may be taken from their job for being slow, and the phase of each, the slowest first."""
    slow = [
        (phase.pace.share, machine.name, machine, phase)
        for machine in snapshot.machines
        if (phase := machine.phase) is not None and phase.pace is not None and phase.pace.is_slow
        if not phase.is_leaving and phase.fence > machine.judged_fence
    ]
    return [(machine, phase) for _, _, machine, phase in sorted(slow, key=lambda one: one[:2])]


def is_dispensable(snapshot: Snapshot, machine: MachineView) -> bool:
    """Whether every job that has its floor still has it without the machine's engine or trainer."""
    without = replace(
        snapshot,
        machines=tuple(
            replace(one, is_cordoned=True, phase=None) if one.id == machine.id else one
            for one in snapshot.machines
        ),
    )
    return _admitted(snapshot) <= _admitted(without)


def _admitted(snapshot: Snapshot) -> frozenset[UUID]:
    jobs = [job for job in snapshot.jobs if job.desired is DesiredJobState.RUN and ending_of(job) is None]
    fleet = Fleet(snapshot, {job.id for job in jobs})
    at_work = {job.id: False for job in jobs if job.state is not JobState.QUEUED}
    return frozenset(job.id for job in floors_admit(fleet, Homes(fleet, snapshot), jobs, at_work).admitted)


def _is_measurable(phase: PhaseView) -> bool:
    return phase.role is Role.ROLLOUT and phase.state is PhaseState.ACTIVE and phase.age_s > WARM_UP_S


def _matters(machine: MachineView, pace: PaceView) -> bool:
    """Whether a rule looks at the pace: it condemns the machine, or ends its quarantine."""
    return pace.is_slow or machine.quarantine is not None


def _with_pace(machine: MachineView, pace: PaceView) -> MachineView:
    assert machine.phase is not None
    return machine.with_phase(replace(machine.phase, pace=pace))


def _paces(rates: list[tuple[float, UUID]]) -> Iterator[tuple[UUID, PaceView]]:
    """Yield the pace of each machine. `rates`: tokens in a second, and the machine."""
    rates.sort()
    num_others = len(rates) - 1
    for place, (rate, machine_id) in enumerate(rates) if num_others >= MIN_OTHERS else ():
        median = _median_of_others(rates, place)
        if median > 0.0:
            share = rate / median
            yield machine_id, PaceView(is_slow=share <= SLOW_SHARE, share=share, num_others=num_others)


def _median_of_others(rates: Sequence[tuple[float, UUID]], place: int) -> float:
    """Return the median of sorted rates without the one at `place`."""
    num_others = len(rates) - 1
    low, high = (num_others - 1) // 2, num_others // 2
    return (rates[low + (low >= place)][0] + rates[high + (high >= place)][0]) / 2.0
