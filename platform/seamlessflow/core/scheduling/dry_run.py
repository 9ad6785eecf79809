"""Follows a snapshot until it is stable: the scheduler decides, every healthy machine obeys, until
no decision is left.

Demand does not change (no group becomes ready, nothing is published) and nothing fails. The first
plan is exactly what the next real cycle decides on this snapshot; the later ones show what follows
from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import (
    AdmitMachine,
    Decision,
    DrainPhase,
    FailPhase,
    Lease,
    LeaseGang,
    MoveJob,
    PauseJob,
    Plan,
    QuarantineMachine,
    SetDesiredVersion,
    SetNext,
)
from seamlessflow.core.scheduling.judging import job_paused, machine_judged
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, Snapshot

MAX_ROUNDS = 32  # queue → start → run → switch to training takes fewer than ten


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run. `first`: the next cycle's plan; `decisions`: all until the snapshot is stable;
    `waiting`: the reasons for waiting then, by job."""

    first: Plan
    decisions: tuple[Decision, ...]
    final: Snapshot
    waiting: Mapping[UUID, str]

    def end_of(self, phase_id: UUID) -> DrainPhase | FailPhase | None:
        """Return the decision that ends a phase, if one does."""
        ends = (d for d in self.decisions if isinstance(d, DrainPhase | FailPhase))
        return next((d for d in ends if d.phase_id == phase_id), None)


def dry_run(snapshot: Snapshot) -> DryRun:
    """Follow a snapshot until it is stable."""
    first = plan = decide(snapshot)
    decisions = list(plan.decisions)
    for _ in range(MAX_ROUNDS):
        following = obeyed(snapshot, plan)
        if following == snapshot:
            break
        snapshot = following
        plan = decide(snapshot)
        decisions += plan.decisions
    return DryRun(first, tuple(decisions), snapshot, plan.waiting_reasons)


def obeyed(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after the plan is applied and, on healthy machines, carried out."""
    machines = {machine.id: machine for machine in snapshot.machines}
    by_phase = {machine.phase.id: machine.id for machine in snapshot.machines if machine.phase is not None}
    jobs = {job.id: job for job in snapshot.jobs}
    for decision in plan.decisions:
        match decision:
            case Lease():
                machines[decision.machine_id] = _leased(
                    machines[decision.machine_id], decision, jobs[decision.job_id]
                )
            case LeaseGang():
                for member, lease in enumerate(decision.leases()):
                    gang = GangView(id=decision.machines[0][0], member=member)
                    machine = _leased(machines[lease.machine_id], lease, jobs[lease.job_id])
                    machines[lease.machine_id] = _with_phase(machine, gang=gang)
            case DrainPhase():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = _with_phase(machines[machine_id], state=PhaseState.DRAINING)
            case SetNext():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = _with_phase(machines[machine_id], then=decision.then)
            case FailPhase():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = replace(machines[machine_id], phase=None)
            case SetDesiredVersion():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = _with_phase(machines[machine_id], desired_version=decision.version)
            case MoveJob():
                jobs[decision.job_id] = replace(jobs[decision.job_id], state=decision.to_state)
            case QuarantineMachine() | AdmitMachine():
                machines[decision.machine_id] = machine_judged(machines[decision.machine_id], decision)
            case PauseJob():
                jobs[decision.job_id] = job_paused(jobs[decision.job_id], decision)
    return replace(
        snapshot,
        machines=tuple(_carried_out(machine) for machine in machines.values()),
        jobs=tuple(job for job in jobs.values() if job.state not in TERMINAL_JOB_STATES),
    )


def _leased(machine: MachineView, lease: Lease, job: JobView) -> MachineView:
    phase = PhaseView(
        id=machine.id,  # the phase is hypothetical; unique, because a machine has at most one
        job_id=job.id,
        role=lease.role,
        state=PhaseState.LEASED,
        fence=0,
        desired_version=job.latest_version,
    )
    return replace(machine, phase=phase)


def _with_phase(machine: MachineView, **changes: object) -> MachineView:
    assert machine.phase is not None
    return replace(machine, phase=replace(machine.phase, **changes))  # type: ignore[arg-type]


def _carried_out(machine: MachineView) -> MachineView:
    phase = machine.phase
    if phase is None or not machine.is_healthy:
        return machine
    if phase.state is PhaseState.DRAINING:
        return replace(machine, phase=None)
    if phase.state is PhaseState.ACTIVE:
        return machine
    return _with_phase(machine, state=PhaseState.ACTIVE, age_s=0.0)
