"""One scheduling cycle: snapshot in, decisions with reasons out. Pure, deterministic, no clock, no
I/O.

Jobs are served in order of creation; a machine claimed by an earlier job is not available to later
ones. The same module drives the live scheduler and the simulator.
"""

from collections.abc import Iterator
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S, STEP_GRACE_S, PhaseState
from seamlessflow.core.scheduling.decisions import (
    Decision,
    DrainPhase,
    Lease,
    MoveJob,
    Plan,
    SetDesiredVersion,
)
from seamlessflow.core.scheduling.eligibility import KEEP_FILTERS, first_rejection
from seamlessflow.core.scheduling.gangs import gang_drains, gang_wait, gangs_to_fail, preempting_job
from seamlessflow.core.scheduling.health import phases_to_fail
from seamlessflow.core.scheduling.job_ends import Ending, ending_of, next_state
from seamlessflow.core.scheduling.layout import Layout, layout_choose
from seamlessflow.core.scheduling.multiplexing import train_turn
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot
from seamlessflow.core.types.tags import Role


def decide(snapshot: Snapshot) -> Plan:
    """Decide one cycle. At most one decision per phase, one lease per machine, one move per job."""
    failing = list(phases_to_fail(snapshot.machines, may_evict=snapshot.may_evict))
    failing += list(gangs_to_fail(snapshot.machines, failing))
    failing_ids = {decision.phase_id for decision in failing}
    claims: dict[UUID, UUID] = {}
    decisions: list[Decision] = [*failing, *_orphans(snapshot)]
    waiting: dict[UUID, str] = {}
    in_need: list[JobView] = []
    for job in snapshot.jobs:
        wanted, waiting[job.id] = _decide_job(job, snapshot, claims, in_need)
        decisions += wanted
    kept = (
        d
        for d in decisions
        if not isinstance(d, DrainPhase | SetDesiredVersion) or d.phase_id not in failing_ids
    )
    stored = {job.id: job.waiting_reason for job in snapshot.jobs}
    return Plan(tuple(_first_per_phase(kept)), waiting, stored)


def _orphans(snapshot: Snapshot) -> Iterator[DrainPhase]:
    known = {job.id for job in snapshot.jobs}
    for machine in snapshot.machines:
        phase = machine.phase
        if phase is not None and phase.job_id not in known and not phase.is_leaving:
            yield _drain(machine, "its job is over", grace_s=0.0)


def _first_per_phase(decisions: Iterator[Decision]) -> Iterator[Decision]:
    """Keep only the first decision about each phase: it may be drained for several reasons, and a leaving phase gets no
    new version."""
    drained: set[UUID] = set()
    for decision in decisions:
        if isinstance(decision, DrainPhase | SetDesiredVersion):
            if decision.phase_id in drained:
                continue
            if isinstance(decision, DrainPhase):
                drained.add(decision.phase_id)
        yield decision


def _decide_job(
    job: JobView, snapshot: Snapshot, claims: dict[UUID, UUID], in_need: list[JobView]
) -> tuple[list[Decision], str]:
    """Decide for one job. `in_need`: older active jobs whose gang is incomplete; this job is added if it is one of
    them."""
    held = snapshot.held_by(job.id)
    ending = ending_of(job)
    if ending is not None:
        claims.update((machine.id, job.id) for machine in held)
        return _end(job, held, ending)
    if job.state is JobState.PAUSED and job.desired is DesiredJobState.RUN:
        return [MoveJob(job_id=job.id, to_state=JobState.QUEUED, reason="resumed by request")], "resumed"
    layout = layout_choose(job, snapshot.machines, claims)
    if layout.shortages and not held:
        return _send_back(job, layout)
    claims.update((machine.id, job.id) for machine in (*held, *layout.machines))
    if layout.shortages and (preempting := preempting_job(in_need, job, snapshot)):
        return _preempted(held, preempting)
    if len(layout.trainers) < job.num_train_machines and job.trains_in_gangs:
        in_need.append(job)
    return _run(job, held, layout)


def _preempted(held: tuple[MachineView, ...], preempting: JobView) -> tuple[list[Decision], str]:
    """Drain every phase of the job, which goes back to the queue once none is live."""
    reason = f"it gives way to an older job that needs {preempting.num_train_machines} machines to train"
    drains = [
        _drain(machine, reason, grace_s=EPISODE_GRACE_S if _role(machine) is Role.AGENT else None)
        for machine in held
        if not _is_leaving(machine)
    ]
    return list(drains), reason


def _end(job: JobView, held: tuple[MachineView, ...], ending: Ending) -> tuple[list[Decision], str]:
    """Drain every phase; once none is live, move the job to its last state."""
    decisions: list[Decision] = [
        _drain(machine, ending.reason, grace_s=_ending_grace_s(machine, ending))
        for machine in held
        if not _is_leaving(machine) and not _serves_last_episodes(job, machine, held, ending)
    ]
    state = next_state(job, ending, is_drained=not held)
    if state is not None:
        decisions.append(MoveJob(job_id=job.id, to_state=state, reason=ending.reason))
    if held:
        names = ", ".join(
            f"{machine.name} ({machine.phase.role})" for machine in held if machine.phase is not None
        )
        return decisions, f"{ending.reason}; waiting for {names} to drain"
    return decisions, ending.reason


def _ending_grace_s(machine: MachineView, ending: Ending) -> float | None:
    """Return how long phases may finish work. A pause waits for work that ends soon; a job that is over discards its
    episodes and, if cancelled, its step."""
    if _role(machine) is Role.AGENT:
        return EPISODE_GRACE_S if ending.to is JobState.PAUSED else 0.0
    is_discarded = _role(machine) is Role.TRAIN and ending.to is JobState.CANCELLED
    return STEP_GRACE_S if is_discarded else None


def _serves_last_episodes(
    job: JobView, machine: MachineView, held: tuple[MachineView, ...], ending: Ending
) -> bool:
    """Whether an engine keeps running so that the agents of a pausing job can finish their episodes."""
    if ending.to is not JobState.PAUSED or _role(machine) is not Role.ROLLOUT:
        return False
    if first_rejection(KEEP_FILTERS, machine, job, Role.ROLLOUT) is not None:
        return False
    return any(_role(other) is Role.AGENT and other.is_healthy for other in held)


def _send_back(job: JobView, layout: Layout) -> tuple[list[Decision], str]:
    """Send the job back to the queue if none of its phases is live and some role cannot be filled."""
    reason = "; ".join(layout.shortages)
    if job.state is JobState.QUEUED:
        return [], reason
    return [MoveJob(job_id=job.id, to_state=JobState.QUEUED, reason=reason)], reason


def _run(job: JobView, held: tuple[MachineView, ...], layout: Layout) -> tuple[list[Decision], str]:
    ineligible = list(_ineligible(job, held))
    decisions: list[Decision] = [*ineligible, *gang_drains(held, ineligible)]
    move = _progress(job, held)
    if move is not None:
        decisions.append(move)
    live_train = tuple(machine for machine in held if _role(machine) is Role.TRAIN)
    is_running = JobState.RUNNING in (job.state, move.to_state if move else None)
    turn = train_turn(job, layout, live_train, is_running=is_running)
    decisions += turn.decisions
    decisions += _agent(job, held, layout)
    decisions += _rollout(job, layout, reserved=turn.reserved)
    decisions += _versions(job, held)
    return decisions, _waiting(job, held, layout)


def _ineligible(job: JobView, held: tuple[MachineView, ...]) -> Iterator[DrainPhase]:
    """Yield drains of phases whose machine was retagged, granted to others or drained while they ran."""
    for machine in held:
        phase = machine.phase
        if phase is not None and not phase.is_leaving:
            reason = first_rejection(KEEP_FILTERS, machine, job, phase.role)
            if reason is not None:
                grace_s = EPISODE_GRACE_S if phase.role is Role.AGENT else None
                yield _drain(machine, reason, grace_s=grace_s)


def _progress(job: JobView, held: tuple[MachineView, ...]) -> MoveJob | None:
    if job.state is JobState.QUEUED:
        return MoveJob(
            job_id=job.id, to_state=JobState.STARTING, reason="machines for every role are available"
        )
    if job.state is JobState.STARTING and _is_up(job, held):
        active = "an engine and the agents are" if job.has_rollout else "the trainer is"
        return MoveJob(job_id=job.id, to_state=JobState.RUNNING, reason=f"{active} active")
    return None


def _agent(job: JobView, held: tuple[MachineView, ...], layout: Layout) -> Iterator[Decision]:
    machine = layout.agent
    if machine is None or any(_role(other) is Role.AGENT for other in held):
        return
    if machine.phase is None:
        yield Lease(
            machine_id=machine.id,
            machine=machine.name,
            job_id=job.id,
            role=Role.AGENT,
            reason="runs the agents",
        )
    elif not _is_leaving(machine):
        yield _drain(machine, "the machine is needed for the agents")


def _rollout(job: JobView, layout: Layout, *, reserved: tuple[MachineView, ...]) -> Iterator[Lease]:
    for machine in layout.rollout:
        if machine.phase is None and machine not in reserved:
            yield Lease(
                machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.ROLLOUT,
                reason="free and may roll out",
            )  # fmt: skip


def _versions(job: JobView, held: tuple[MachineView, ...]) -> Iterator[SetDesiredVersion]:
    for machine in held:
        phase = machine.phase
        if phase is None or phase.role is not Role.ROLLOUT or phase.is_leaving:
            continue
        if phase.desired_version < job.latest_version:
            yield SetDesiredVersion(
                phase_id=phase.id, machine=machine.name, version=job.latest_version,
                reason=f"behind: desired {phase.desired_version}, latest {job.latest_version}",
            )  # fmt: skip


def _waiting(job: JobView, held: tuple[MachineView, ...], layout: Layout) -> str:
    if layout.shortages:
        return "; ".join(layout.shortages)
    if job.num_failures and job.last_failure:
        return f"retrying after {job.num_failures} failed phases; last failure: {job.last_failure}"
    if wait := gang_wait(layout.trainers, held) if job.trains_in_gangs else "":
        return wait
    if _is_up(job, held):
        is_measured_last = job.num_remaining_updates == 0
        return "all updates are published; the last version is being evaluated" if is_measured_last else ""
    if not job.has_rollout:
        return "waiting for the trainer to become active"
    if _is_training_alone(held):
        where = "all machines that roll out" if job.trains_in_gangs else "the only machine that rolls out"
        return f"training on {where}; requests are held meanwhile"
    missing = [] if _has_active(held, Role.ROLLOUT) else ["an engine"]
    missing += [] if not job.has_agents or _has_active(held, Role.AGENT) else ["the agents"]
    return f"waiting for {' and '.join(missing)} to become active"


def _is_training_alone(held: tuple[MachineView, ...]) -> bool:
    return _has_active(held, Role.TRAIN) and not any(_role(machine) is Role.ROLLOUT for machine in held)


def _is_up(job: JobView, held: tuple[MachineView, ...]) -> bool:
    if not job.has_rollout:
        return _has_active(held, Role.TRAIN)
    return _has_active(held, Role.ROLLOUT) and (not job.has_agents or _has_active(held, Role.AGENT))


def _has_active(held: tuple[MachineView, ...], role: Role) -> bool:
    return any(
        m.phase is not None and m.phase.role is role and m.phase.state is PhaseState.ACTIVE for m in held
    )


def _role(machine: MachineView) -> Role | None:
    return machine.phase.role if machine.phase is not None else None


def _is_leaving(machine: MachineView) -> bool:
    return machine.phase is not None and machine.phase.is_leaving


def _drain(machine: MachineView, reason: str, *, grace_s: float | None = None) -> DrainPhase:
    assert machine.phase is not None
    return DrainPhase(phase_id=machine.phase.id, machine=machine.name, reason=reason, grace_s=grace_s)
