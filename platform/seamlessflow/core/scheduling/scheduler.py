"""One scheduling cycle: snapshot in, decisions with reasons out. Pure, deterministic, no clock, no
I/O.

Four passes decide about the jobs that should run: `floors` (who may hold machines), `shares` (how many of which class),
`placement` (which ones) and `multiplexing` (when they train). Before them come who is to blame for failures
(`judging`), the phases that failed and the jobs that end. The same module drives the live scheduler and the simulator.
"""

from collections.abc import Iterator
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S, STEP_GRACE_S
from seamlessflow.core.scheduling.activity import is_up
from seamlessflow.core.scheduling.blame.health import phases_to_fail
from seamlessflow.core.scheduling.blame.judging import judge
from seamlessflow.core.scheduling.decisions import (
    Decision,
    DrainPhase,
    MoveJob,
    Plan,
    SetDesiredVersion,
    SetNext,
)
from seamlessflow.core.scheduling.eligibility import KEEP_FILTERS, first_rejection
from seamlessflow.core.scheduling.job_ends import Ending, ending_of, next_state
from seamlessflow.core.scheduling.moves import agent_drains, job_moves, next_moves, spare_leases
from seamlessflow.core.scheduling.passes.arrears import differences
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.passes.gangs import gang_drains, gangs_to_fail
from seamlessflow.core.scheduling.pausing import pausing_drains
from seamlessflow.core.scheduling.plan import FleetPlan, fleet_plan
from seamlessflow.core.scheduling.quotas import quota_drains, within_quotas
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, MachineView, PhaseView, Snapshot
from seamlessflow.core.scheduling.waiting import state_reason, waiting_reason
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role


def decide(snapshot: Snapshot) -> Plan:
    """Decide one cycle. At most one decision per phase, one lease per machine and one more for each job's agents there,
    one move per job."""
    judged = judge(snapshot)
    snapshot = judged.snapshot
    failing = list(phases_to_fail(snapshot.machines, may_evict=snapshot.may_evict))
    failing += list(gangs_to_fail(snapshot.machines, failing))
    failing_ids = {decision.phase_id for decision in failing}
    decisions: list[Decision] = [*judged.decisions, *failing, *_orphans(snapshot)]
    waiting: dict[UUID, str] = {}
    running: list[JobView] = []
    for job in snapshot.jobs:
        ending = ending_of(job)
        if ending is not None:
            ends, waiting[job.id] = _end(job, snapshot.live_phases(job.id), ending)
            decisions += ends
        elif job.state is JobState.PAUSED and job.desired is DesiredJobState.RUN:
            decisions.append(MoveJob(job_id=job.id, to_state=JobState.QUEUED, reason="resumed by request"))
            waiting[job.id] = "resumed"
        else:
            running.append(job)
    plan = fleet_plan(snapshot, running, judged)
    decisions += [drain for job in running for drain in _drains(job, plan)]
    decisions += agent_drains(plan)
    for job in running:
        decisions += _run(job, plan)
        waiting[job.id] = waiting_reason(job, plan)
    decisions += [*next_moves(plan), *quota_drains(plan), *pausing_drains(plan), *spare_leases(plan)]
    kept = (
        d
        for d in within_quotas(decisions, plan)
        if not isinstance(d, DrainPhase | SetDesiredVersion | SetNext) or d.phase_id not in failing_ids
    )
    stored = {job.id: job.waiting_reason for job in snapshot.jobs}
    states = {job.id: state_reason(job, waiting[job.id]) for job in snapshot.jobs}
    return Plan(tuple(_first_per_phase(kept)), waiting, stored, states, differences(plan.claims()))


def _orphans(snapshot: Snapshot) -> Iterator[DrainPhase]:
    known = {job.id for job in snapshot.jobs}
    for machine in snapshot.machines if snapshot.holders() - known else ():
        for phase in machine.phases:
            if phase.job_id not in known and not phase.is_leaving:
                yield _drain(machine, phase, "its job is over", grace_s=0.0)


def _first_per_phase(decisions: Iterator[Decision]) -> Iterator[Decision]:
    """Keep only the first decision about each phase: it may be drained for several reasons, and a leaving phase gets no
    new version."""
    drained: set[UUID] = set()
    for decision in decisions:
        if isinstance(decision, DrainPhase | SetDesiredVersion | SetNext):
            if decision.phase_id in drained:
                continue
            if isinstance(decision, DrainPhase):
                drained.add(decision.phase_id)
        yield decision


def _end(job: JobView, live: tuple[LivePhase, ...], ending: Ending) -> tuple[list[Decision], str]:
    """Drain every phase; once none is live, move the job to its last state."""
    decisions: list[Decision] = [
        _drain(machine, phase, ending.reason, grace_s=_ending_grace_s(phase, ending))
        for machine, phase in live
        if not phase.is_leaving and not _serves_last_episodes(job, (machine, phase), live, ending)
    ]
    state = next_state(job, ending, is_drained=not live)
    if state is not None:
        decisions.append(MoveJob(job_id=job.id, to_state=state, reason=ending.reason))
    if live:
        names = ", ".join(f"{machine.name} ({phase.role})" for machine, phase in live)
        return decisions, f"{ending.reason}; waiting for {names} to drain"
    return decisions, ending.reason


def _ending_grace_s(phase: PhaseView, ending: Ending) -> float | None:
    """Return how long phases may finish work. A pause waits for work that ends soon; a job that is over discards its
    episodes and, if cancelled, its step."""
    if phase.role is Role.AGENT:
        return EPISODE_GRACE_S if ending.to is JobState.PAUSED else 0.0
    is_discarded = phase.role is Role.TRAIN and ending.to is JobState.CANCELLED
    return STEP_GRACE_S if is_discarded else None


def _serves_last_episodes(job: JobView, one: LivePhase, live: tuple[LivePhase, ...], ending: Ending) -> bool:
    """Whether an engine keeps running so that the agents of a pausing job can finish their episodes."""
    machine, phase = one
    if ending.to is not JobState.PAUSED or phase.role is not Role.ROLLOUT:
        return False
    if first_rejection(KEEP_FILTERS, machine, job, Role.ROLLOUT) is not None:
        return False
    return any(other.role is Role.AGENT and where.is_healthy for where, other in live)


def _drains(job: JobView, plan: FleetPlan) -> Iterator[DrainPhase]:
    """Yield drains of the job's phases that must leave in any case: they no longer fit, or the job stops
    for others."""
    live = plan.snapshot.live_phases(job.id)
    ineligible = list(_ineligible(job, live, plan.fleet))
    yield from ineligible
    yield from gang_drains(live, ineligible)
    if reason := plan.displaced.get(job.id):
        for machine, phase in live:
            if not phase.is_leaving:
                yield _drain(machine, phase, reason, grace_s=_grace_s(phase))


def _run(job: JobView, plan: FleetPlan) -> Iterator[Decision]:
    live = plan.snapshot.live_phases(job.id)
    if not plan.is_served(job):
        if not live and job.state is not JobState.QUEUED:
            yield MoveJob(job_id=job.id, to_state=JobState.QUEUED, reason=waiting_reason(job, plan))
        return
    move = _progress(job, live, plan)
    if move is not None:
        yield move
    yield from job_moves(job, plan)
    yield from _versions(job, live)


def _ineligible(job: JobView, live: tuple[LivePhase, ...], fleet: Fleet) -> Iterator[DrainPhase]:
    """Yield drains of phases whose machine was retagged, granted to others or drained while they ran."""
    classes = {role: fleet.classes_for(job, role) for role in EXCLUSIVE_ROLES} if live else {}
    for machine, phase in live:
        if phase.is_leaving:
            continue
        # A job that may get the machine may keep it, so the rules are asked about few machines.
        if fleet.class_of.get(machine.id) not in classes.get(phase.role, ()):
            reason = first_rejection(KEEP_FILTERS, machine, job, phase.role)
            if reason is not None:
                yield _drain(machine, phase, reason, grace_s=_grace_s(phase))


def _progress(job: JobView, live: tuple[LivePhase, ...], plan: FleetPlan) -> MoveJob | None:
    if job.state is JobState.QUEUED:
        return MoveJob(
            job_id=job.id, to_state=JobState.STARTING, reason="machines for every role are available"
        )
    if job.state is JobState.STARTING and is_up(job, live):
        reason = state_reason(job, waiting_reason(job, plan))
        return MoveJob(job_id=job.id, to_state=JobState.RUNNING, reason=reason)
    return None


def _versions(job: JobView, live: tuple[LivePhase, ...]) -> Iterator[SetDesiredVersion]:
    for machine, phase in live:
        if phase.role is not Role.ROLLOUT or phase.is_leaving:
            continue
        if phase.desired_version < job.latest_version:
            yield SetDesiredVersion(
                phase_id=phase.id, machine=machine.name, version=job.latest_version,
                reason=f"behind: desired {phase.desired_version}, latest {job.latest_version}",
            )  # fmt: skip


def _grace_s(phase: PhaseView) -> float | None:
    return EPISODE_GRACE_S if phase.role is Role.AGENT else None


def _drain(
    machine: MachineView, phase: PhaseView, reason: str, *, grace_s: float | None = None
) -> DrainPhase:
    return DrainPhase(phase_id=phase.id, machine=machine.name, reason=reason, grace_s=grace_s)
