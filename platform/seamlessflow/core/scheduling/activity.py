"""Whether what a job needs to make progress is active. Takes a job and its live phases, each with its machine."""

from collections.abc import Sequence

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase
from seamlessflow.core.types.tags import Role


def is_running(job: JobView, live: Sequence[LivePhase]) -> bool:
    """Whether the job runs, or will by a move of this cycle."""
    return job.state is JobState.RUNNING or (job.state is JobState.STARTING and is_up(job, live))


def is_up(job: JobView, live: Sequence[LivePhase]) -> bool:
    """Whether the phases that the job needs to make progress are active."""
    if not job.has_rollout:
        return has_active(live, Role.TRAIN)
    return has_active(live, Role.ROLLOUT) and (not job.has_agents or has_active(live, Role.AGENT))


def has_active(live: Sequence[LivePhase], role: Role) -> bool:
    return any(phase.role is role and phase.state is PhaseState.ACTIVE for _, phase in live)
