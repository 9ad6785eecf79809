"""Drains of a phase in favour of the machine's next phase, with the reason that people read."""

from seamlessflow.core.scheduling.decisions import DrainPhase, NextPhase
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView
from seamlessflow.core.types.tags import Role

_VERBS = {Role.ROLLOUT: "roll out", Role.TRAIN: "train", Role.AGENT: "run its agents"}


def hand_over(
    job: JobView,
    role: Role,
    machine: MachineView,
    phase: PhaseView,
    *,
    reason: str,
    num_batches: int | None = None,
    grace_s: float | None = None,
) -> DrainPhase:
    """Ask the machine's phase to hand over to `role` of `job`, which may be another job than its own."""
    then = next_phase(job, role, phase, reason=reason, num_batches=num_batches)
    switch = (
        "the machine switches to training"
        if role is Role.TRAIN
        else f"the machine is needed to {_VERBS[role]}"
    )
    # The reason is shown to the holder's project, which may be another one, so the job is not named.
    is_own = phase.job_id == job.id
    full_reason = f"{reason}: {switch}" if is_own else f"another job needs the machine to {_VERBS[role]}"
    return DrainPhase(phase_id=phase.id, machine=machine.name, reason=full_reason, then=then, grace_s=grace_s)


def next_phase(
    job: JobView, role: Role, phase: PhaseView, *, reason: str, num_batches: int | None = None
) -> NextPhase:
    """Return what follows `phase`."""
    other = None if phase.job_id == job.id else job.id
    return NextPhase(role=role, job_id=other, num_batches=num_batches, reason=reason)
