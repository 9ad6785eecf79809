"""Follows a snapshot until it is stable: the scheduler decides, every healthy machine obeys, until
no decision is left.

Demand does not change (no group becomes ready, nothing is published) and nothing fails. The first
plan is exactly what the next real cycle decides on this snapshot; the later ones show what follows
from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.blame.judging import job_paused, machine_judged
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
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

MAX_ROUNDS = 32  # queue → start → run → switch to training takes fewer than ten


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run. `first`: the next cycle's plan; `decisions`: all until the snapshot is stable;
    `waiting`: the reasons for waiting then, by job."""

    first: Plan
    decisions: tuple[Decision, ...]
    final: Snapshot
    waiting: Mapping[UUID, str]
    _ends: dict[UUID, DrainPhase | FailPhase] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends: dict[UUID, DrainPhase | FailPhase] = {}
        for decision in self.decisions:
            if isinstance(decision, DrainPhase | FailPhase):
                ends.setdefault(decision.phase_id, decision)
        object.__setattr__(self, "_ends", ends)

    def end_of(self, phase_id: UUID) -> DrainPhase | FailPhase | None:
        """Return the first decision that ends a phase, if one does."""
        return self._ends.get(phase_id)


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
    by_phase = {phase.id: machine.id for machine in snapshot.machines for phase in machine.phases}
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
                    machine = machines[lease.machine_id]
                    machines[lease.machine_id] = _leased(machine, lease, jobs[lease.job_id], gang)
            case DrainPhase():
                machine_id = by_phase[decision.phase_id]
                machine = machines[machine_id]
                machines[machine_id] = _changed(machine, decision.phase_id, state=PhaseState.DRAINING)
            case SetNext():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = _changed(machines[machine_id], decision.phase_id, then=decision.then)
            case FailPhase():
                machine_id = by_phase[decision.phase_id]
                machines[machine_id] = machines[machine_id].without_phase(decision.phase_id)
            case SetDesiredVersion():
                machine_id = by_phase[decision.phase_id]
                machine, version = machines[machine_id], decision.version
                machines[machine_id] = _changed(machine, decision.phase_id, desired_version=version)
            case MoveJob():
                jobs[decision.job_id] = replace(jobs[decision.job_id], state=decision.to_state)
            case QuarantineMachine() | AdmitMachine():
                machines[decision.machine_id] = machine_judged(machines[decision.machine_id], decision)
            case PauseJob():
                jobs[decision.job_id] = job_paused(jobs[decision.job_id], decision)
    return replace(
        snapshot,
        machines=tuple(_gangs_told([_carried_out(machine) for machine in machines.values()], snapshot)),
        jobs=tuple(job for job in jobs.values() if job.state not in TERMINAL_JOB_STATES),
    )


def _leased(machine: MachineView, lease: Lease, job: JobView, gang: GangView | None = None) -> MachineView:
    is_agent = lease.role is Role.AGENT
    phase = PhaseView(
        # The phase is hypothetical. A machine has at most one phase besides agents, and at most one of agents of a job.
        id=uuid5(machine.id, str(job.id)) if is_agent else machine.id,
        job_id=job.id,
        role=lease.role,
        state=PhaseState.LEASED,
        fence=machine.judged_fence + 1,  # a trial is newer than the judgement
        desired_version=job.latest_version,
        gang=gang,
    )
    return machine.with_phase(phase)


def _gangs_told(machines: Sequence[MachineView], before: Snapshot) -> Iterator[MachineView]:
    """Yield the machines, where members of a gang know that another one of them is gone."""
    left = {phase.id for machine in machines for phase in machine.phases}
    live = [(phase.id, phase.gang.id) for one in before.machines if (phase := one.phase) and phase.gang]
    broken = {gang_id for phase_id, gang_id in live if phase_id not in left}
    for machine in machines:
        phase = machine.phase
        if phase is not None and phase.gang is not None and phase.gang.id in broken:
            yield machine.with_phase(replace(phase, gang=replace(phase.gang, has_ended=True)))
        else:
            yield machine


def _changed(machine: MachineView, phase_id: UUID, **changes: object) -> MachineView:
    phase = next(one for one in machine.phases if one.id == phase_id)
    return machine.with_phase(replace(phase, **changes))  # type: ignore[arg-type]


def _carried_out(machine: MachineView) -> MachineView:
    for phase in machine.phases if machine.is_healthy else ():
        if phase.state is PhaseState.DRAINING:
            machine = machine.without_phase(phase.id)
        elif phase.state is not PhaseState.ACTIVE:
            machine = _changed(machine, phase.id, state=PhaseState.ACTIVE, age_s=0.0)
    return machine
