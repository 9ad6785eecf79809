"""Who is to blame for failed phases: their machine, their job, or neither yet.

Takes the failures of the last hour and what works now. A machine that fails phases of jobs that work elsewhere is
quarantined: it gets no work for a while, then one phase that tries it out; each further failure doubles the while. A
job that fails on several machines which fail no other job is asked to pause. A machine that rolls out much slower than
the others of its job (`stragglers`) is quarantined too and its engine drained, one machine in a cycle and none that a
floor needs; the pace of the phase that tries it out decides again. Until either is known, a job that fails in
a role waits between its tries, and does not go back to a machine where it failed as long as another one fits.

Invariants: a lost machine counts as a failure of no job and no machine; failures before a publication, or before
a person resumed the job, do not count against it; a failure leads to at most one quarantine. `judge` has no clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import DesiredJobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.blame.stragglers import is_dispensable, stragglers
from seamlessflow.core.scheduling.decisions import (
    AdmitMachine,
    DrainPhase,
    Judgement,
    PauseJob,
    QuarantineMachine,
)
from seamlessflow.core.scheduling.eligibility import FIT_FILTERS, first_rejection
from seamlessflow.core.scheduling.evidence import (
    AVOIDED_S,
    LONGEST_RETRY_S,
    LONGEST_S,
    MAX_MACHINES,
    RETRY_S,
    Evidence,
    doubled,
    is_proven,
)
from seamlessflow.core.scheduling.job_ends import ending_of
from seamlessflow.core.scheduling.snapshot import (
    FailureView,
    JobView,
    MachineView,
    Owner,
    PhaseView,
    QuarantineView,
    Snapshot,
)
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role

QUARANTINE_S = 30.0  # the first one; each further one in a row is twice as long
# A machine is to blame for so many failures in a row of jobs that work elsewhere, or of so many jobs that failed
# nowhere else although they could have worked there. Of those that are up nowhere else, each project's count once: its
# models may be broken.
MAX_OF_WORKING, MAX_ONLY_HERE = 2, 3
# A machine that was slow is admitted if no trial has been found slow for so long after the backoff.
TRIED_S = 600.0
MAX_TRIES = 6  # a job that fails so often without doing any work pauses, with or without its fault


@dataclass(frozen=True, slots=True)
class Judged:
    """The decisions, the snapshot after them, which jobs should avoid which machine in a role (by machine), and
    which wait before they try a role again."""

    decisions: tuple[Judgement | DrainPhase, ...]
    snapshot: Snapshot
    avoided: Mapping[UUID, frozenset[Owner]]
    resting: frozenset[Owner]


def judge(snapshot: Snapshot) -> Judged:
    evidence = Evidence(snapshot)
    machines: dict[UUID, QuarantineMachine | AdmitMachine] = {
        decision.machine_id: decision for decision in _machines_judge(snapshot, evidence)
    }
    # A fault of the machine is none of the job.
    guilty = {one.machine_id for one in machines.values() if isinstance(one, QuarantineMachine)}
    evidence = evidence.without(guilty)
    if not guilty and (slow := _straggler_judge(snapshot)) is not None:
        machines[slow.machine_id] = slow
    pauses = {pause.job_id: pause for pause in _jobs_judge(snapshot, evidence)}
    if machines or pauses:
        snapshot = replace(
            snapshot,
            machines=tuple(
                machine_judged(one, machines[one.id]) if one.id in machines else one
                for one in snapshot.machines
            ),
            jobs=tuple(job_paused(one, pauses[one.id]) if one.id in pauses else one for one in snapshot.jobs),
        )
    drains = {drain.phase_id: drain for drain in _slow_drains(snapshot)}
    if drains:
        snapshot = replace(
            snapshot,
            machines=tuple(
                one.with_phase(replace(one.phase, state=PhaseState.DRAINING, age_s=0.0))
                if one.phase is not None and one.phase.id in drains
                else one
                for one in snapshot.machines
            ),
        )
    decisions = (*machines.values(), *pauses.values(), *drains.values())
    return Judged(decisions, snapshot, evidence.avoided(), evidence.resting())


def age_limits_s() -> Iterator[float]:
    """Yield every age of a failure at which a judgement may change."""
    for first_s, longest_s in (
        (QUARANTINE_S, LONGEST_S),
        (AVOIDED_S, LONGEST_S),
        (RETRY_S, LONGEST_RETRY_S),
    ):
        yield first_s
        num = 1
        while doubled(first_s, num, longest_s) < longest_s:
            num += 1
            yield doubled(first_s, num, longest_s)


def machine_judged(machine: MachineView, decision: QuarantineMachine | AdmitMachine) -> MachineView:
    """Return the machine as it is after the decision."""
    if isinstance(decision, AdmitMachine):
        return replace(machine, quarantine=None)
    quarantine = QuarantineView(
        reason=decision.reason, num=decision.num, backoff_s=decision.backoff_s, is_slow=decision.is_slow
    )
    return replace(machine, quarantine=quarantine, judged_fence=decision.fence)


def job_paused(job: JobView, decision: PauseJob) -> JobView:
    """Return the job as it is after the decision."""
    return replace(job, desired=DesiredJobState.PAUSE, pause_reason=decision.reason)


def _machines_judge(snapshot: Snapshot, evidence: Evidence) -> Iterator[QuarantineMachine | AdmitMachine]:
    for machine in snapshot.machines:
        failures = evidence.of_machine.get(machine.id, ()) if evidence.of_machine else ()
        if not failures and machine.quarantine is None:
            continue
        counted = [failure for failure in failures if not evidence.is_suspect(failure.owner)]
        if counted and (reason := _why_to_quarantine(machine, counted, evidence, snapshot)):
            num = 1 if machine.quarantine is None else machine.quarantine.num + 1
            yield QuarantineMachine(
                machine_id=machine.id, machine=machine.name, reason=reason, num=num,
                backoff_s=doubled(QUARANTINE_S, num), fence=max(failure.fence for failure in failures),
                is_slow=machine.quarantine is not None and machine.quarantine.is_slow,
            )  # fmt: skip
        elif machine.quarantine is not None and not failures and _is_cleared(machine):
            yield AdmitMachine(
                machine_id=machine.id, machine=machine.name, reason=_why_to_admit(machine.quarantine),
                fence=machine.judged_fence,
            )  # fmt: skip


def _why_to_quarantine(
    machine: MachineView, failures: list[FailureView], evidence: Evidence, snapshot: Snapshot
) -> str:
    """Return why a machine is to blame for its failures. The job of another project may read it, so no job is named."""
    roles = " and ".join(sorted({failure.role for failure in failures}))
    if machine.quarantine is not None:
        return f"the {roles} phase that tried it out failed"
    of_working = [failure for failure in failures if evidence.works_elsewhere(failure)]
    if len(of_working) >= MAX_OF_WORKING:
        return f"{len(of_working)} {roles} phases failed on it, of jobs that work elsewhere"
    only_here = [failure for failure in failures if evidence.fails_only_here(failure)]
    # Jobs that fit nowhere else are no evidence: each fails here, whatever its fault.
    telling = [failure for failure in only_here if _fits_elsewhere(failure, snapshot)]
    if len({_counted_for(failure, evidence, snapshot) for failure in telling}) >= MAX_ONLY_HERE:
        num_jobs = len({failure.job_id for failure in telling})
        return f"{roles} phases of {num_jobs} jobs failed on it, which fail nowhere else"
    return ""


def _counted_for(failure: FailureView, evidence: Evidence, snapshot: Snapshot) -> UUID | None:
    """Return the job whose failures count once, or its project if nothing distinguishes the job from a broken one."""
    job = snapshot.job(failure.job_id)
    if job is None or evidence.is_up_elsewhere(failure):
        return failure.job_id
    return job.project_id


def _fits_elsewhere(failure: FailureView, snapshot: Snapshot) -> bool:
    job = snapshot.job(failure.job_id)
    return job is not None and any(
        first_rejection(FIT_FILTERS, machine, job, failure.role) is None
        for machine in snapshot.machines
        if machine.id != failure.machine_id and _takes_work(machine)
    )


def _takes_work(machine: MachineView) -> bool:
    return (
        machine.is_healthy
        and not machine.is_cordoned
        and not machine.is_draining
        and machine.quarantine is None
    )


def _why_to_admit(quarantine: QuarantineView) -> str:
    return "no phase is slow on it any more" if quarantine.is_slow else "a phase has worked well on it again"


def _straggler_judge(snapshot: Snapshot) -> QuarantineMachine | None:
    """Quarantine at most one machine that rolls out slowly, the slowest that no job needs for its floor."""
    for machine, phase in stragglers(snapshot):
        job = snapshot.job(phase.job_id)
        if job is None or job.desired is not DesiredJobState.RUN or ending_of(job) is not None:
            continue
        if is_dispensable(snapshot, machine):
            num = 1 if machine.quarantine is None else machine.quarantine.num + 1
            return QuarantineMachine(
                machine_id=machine.id, machine=machine.name, reason=_why_slow(phase), num=num,
                backoff_s=doubled(QUARANTINE_S, num), fence=phase.fence, is_slow=True,
            )  # fmt: skip
    return None


def _why_slow(phase: PhaseView) -> str:
    assert phase.pace is not None
    share, num_others = phase.pace.share, phase.pace.num_others
    return f"it rolls out at {share:.2f} of the rate of the {num_others} other machines of the same job"


def _slow_drains(snapshot: Snapshot) -> Iterator[DrainPhase]:
    """Yield drains of the phases that were judged for being slow: their turns go on elsewhere."""
    for machine in snapshot.machines:
        phase, quarantine = machine.phase, machine.quarantine
        if quarantine is None or not quarantine.is_slow or phase is None or phase.is_leaving:
            continue
        if phase.role is Role.ROLLOUT and phase.fence <= machine.judged_fence:
            reason = f"its machine is in quarantine: {quarantine.reason}"
            yield DrainPhase(phase_id=phase.id, machine=machine.name, reason=reason)


def _is_cleared(machine: MachineView) -> bool:
    quarantine = machine.quarantine
    if quarantine is not None and quarantine.is_slow:
        return _keeps_pace(machine) or quarantine.age_s > quarantine.backoff_s + TRIED_S
    if quarantine is not None and quarantine.is_proven:
        return True
    return any(phase.fence > machine.judged_fence and is_proven(phase) for phase in _trials(machine))


def _keeps_pace(machine: MachineView) -> bool:
    """Whether the engine that tries the machine out is known not to be slow."""
    phase = machine.phase
    is_trial = phase is not None and phase.fence > machine.judged_fence
    return is_trial and phase is not None and phase.pace is not None and not phase.pace.is_slow


def _trials(machine: MachineView) -> Sequence[PhaseView]:
    """Return the phases that may show that the machine works. Agents use no device, so they show nothing of a machine
    that may roll out or train."""
    if machine.tags.isdisjoint(EXCLUSIVE_ROLES):
        return machine.agents
    return [phase for phase in machine.phases if phase.role is not Role.AGENT]


def _jobs_judge(snapshot: Snapshot, evidence: Evidence) -> Iterator[PauseJob]:
    for owner, failures in evidence.tries_of.items():
        job = snapshot.job(owner[0])
        if job is None or job.desired is not DesiredJobState.RUN or ending_of(job) is not None:
            continue
        if reason := _why_to_pause(owner, failures, evidence):
            yield PauseJob(job_id=job.id, reason=reason)


def _why_to_pause(owner: Owner, failures: list[FailureView], evidence: Evidence) -> str:
    """`failures`: all of them, whether a machine was to blame or not."""
    newest = min(failures, key=lambda one: one.age_s)
    if evidence.works_elsewhere(newest):
        return ""
    last = f"; last failure: {newest.reason}" if newest.reason else ""
    if evidence.is_suspect(owner):
        names = _names([evidence.name_of(one) for one in evidence.machines_of(owner)][-MAX_MACHINES:])
        return f"its {owner[1]} phases failed on {names}, which fail no other job{last}"
    if len(failures) >= MAX_TRIES:
        return f"its {owner[1]} phase failed {len(failures)} times without doing any work{last}"
    return ""


def _names(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
