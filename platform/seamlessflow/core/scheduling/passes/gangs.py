"""Training of one job on several machines: a gang, whose phases are leased, drained and given up
together.

Machines that also roll out hand over together, and those that are free first wait for the last one
(`awaiting_gang` in the ledger): a hand-over is short, and a machine that started to roll out again
would soon be taken back. Who gets the machines, and how many there are between the job's bounds, is decided before
(`floors`, `shares`, `placement`). A gang keeps its size until its phases end.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.scheduling.decisions import Decision, DrainPhase, FailPhase, LeaseGang, NextPhase
from seamlessflow.core.scheduling.passes.hand_overs import hand_over
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, MachineView
from seamlessflow.core.types.tags import Role

GATHER_LIMIT_S = 300.0  # from the lease until all trainers run and are connected to each other
TOLD_AFTER_S = 5.0  # a longer wait is reported to people


def gangs_to_fail(machines: Sequence[MachineView], failing: Collection[FailPhase]) -> Iterator[FailPhase]:
    """Yield the remaining members of each gang that lost one, and all members of a gang that does not come together."""
    reasons = {decision.phase_id: decision.reason for decision in failing}
    live = [(machine, phase) for machine in machines if (phase := machine.phase) and phase.gang is not None]
    for members in _gangs(live).values():
        reason, late = _break_up(members, reasons)
        for machine, phase in members:
            if reason and phase.id not in reasons:
                cause = FailureCause.WORK if machine.name in late else FailureCause.GANG
                yield FailPhase(phase_id=phase.id, machine=machine.name, reason=reason, cause=cause)


def _break_up(members: Sequence[LivePhase], reasons: dict[UUID, str]) -> tuple[str, list[str]]:
    """Return why the gang ends ("" if it does not), and the machines that are to blame besides those that failed."""
    gang = members[0][1].gang
    assert gang is not None
    lost = gang.failure or next((reasons[phase.id] for _, phase in members if phase.id in reasons), "")
    if lost:
        return f"the gang lost a member: {lost}", []
    waiting = [(machine, phase) for machine, phase in members if phase.state in _GATHERING]
    if all(phase.age_s <= GATHER_LIMIT_S for _, phase in waiting):
        return "", []
    late = _late(members)
    return f"the gang did not come together within {GATHER_LIMIT_S:g} s: {', '.join(late)} did not join", late


def gang_drains(live: Sequence[LivePhase], drained: Collection[DrainPhase]) -> Iterator[DrainPhase]:
    """Yield drains for the rest of each gang that a member has left, is leaving or must leave (`drained`)."""
    leaving = {decision.phase_id: decision for decision in drained}
    for members in _gangs(live).values():
        first = next((leaving[phase.id] for _, phase in members if phase.id in leaving), None)
        gang = members[0][1].gang
        assert gang is not None
        if first is None and not gang.has_ended and not any(phase.is_leaving for _, phase in members):
            continue
        reason = f"it trains with {first.machine}, and {first.reason}" if first else "its gang stops training"
        for machine, phase in members:
            if phase.id not in leaving and not phase.is_leaving:
                yield DrainPhase(
                    phase_id=phase.id,
                    machine=machine.name,
                    reason=reason,
                    grace_s=first.grace_s if first else None,
                )


def gang_gather(
    job: JobView,
    members: Sequence[MachineView],
    *,
    num_batches: int | None,
    reason: str,
    then: NextPhase | None,
) -> tuple[Decision, ...]:
    """Lease all machines once they are free; until then, ask the others to hand over."""
    if all(machine.phase is None for machine in members):
        machines = tuple((machine.id, machine.name) for machine in members)
        return (
            LeaseGang(machines=machines, job_id=job.id, num_batches=num_batches, reason=reason, then=then),
        )
    return tuple(
        hand_over(job, Role.TRAIN, machine, machine.phase, num_batches=num_batches, reason=reason)
        for machine in members
        if machine.phase is not None and not machine.phase.is_leaving
    )


def gang_wait(members: Sequence[MachineView], live: Sequence[LivePhase]) -> str:
    """Return the reason why the gang waits, in one clause; "" if it has not waited long enough to report."""
    for gang in _gangs(live).values():
        if any(phase.state in _GATHERING and phase.age_s > TOLD_AFTER_S for _, phase in gang):
            return f"training waits for {', '.join(_late(gang))} to join"
        return ""
    slow = [
        machine.name
        for machine in members
        if machine.phase is not None and machine.phase.is_leaving and machine.phase.age_s > TOLD_AFTER_S
    ]
    return f"training waits for {', '.join(slow)} to hand over" if slow else ""


_GATHERING = (PhaseState.LEASED, PhaseState.STARTING)


def _gangs(live: Sequence[LivePhase]) -> dict[UUID, list[LivePhase]]:
    """Return the live members of each gang, the leader first."""
    gangs: dict[UUID, list[LivePhase]] = defaultdict(list)
    for machine, phase in live:
        if phase.gang is not None:
            gangs[phase.gang.id].append((machine, phase))
    for members in gangs.values():
        members.sort(key=_member)
    return gangs


def _member(one: LivePhase) -> int:
    gang = one[1].gang
    assert gang is not None
    return gang.member


def _late(members: Sequence[LivePhase]) -> list[str]:
    """Return the names of the late members. The leader waits for all others, so it is late only if no other is."""
    late = [machine.name for machine, phase in members if phase.state in _GATHERING]
    leader = members[0][0].name
    return [name for name in late if name != leader] or [leader]
