"""Decides whether a job continues (None) or ends once its phases have drained.

Failures end no job: at most they pause it (`judging`), so it goes on once a person has mended the cause."""

from dataclasses import dataclass

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.scheduling.snapshot import JobView


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends. `via`: its state while phases drain (None: unchanged); `to`: its state afterwards."""

    to: JobState
    via: JobState | None
    reason: str


def ending_of(job: JobView) -> Ending | None:
    if job.desired is DesiredJobState.CANCEL or job.state is JobState.CANCELLING:
        return Ending(JobState.CANCELLED, JobState.CANCELLING, "cancelled by request")
    if job.num_remaining_updates == 0 and not job.awaits_evaluation:
        return Ending(JobState.COMPLETED, None, f"all {job.num_updates} updates are published")
    if job.desired is DesiredJobState.PAUSE or job.state is JobState.PAUSING:
        return Ending(JobState.PAUSED, JobState.PAUSING, _why_paused(job))
    return None


def _why_paused(job: JobView) -> str:
    if job.desired is DesiredJobState.RUN:  # phases that are leaving cannot come back, so it arrives first
        return "resumed before it had paused"
    return job.pause_reason or "paused by request"


def next_state(job: JobView, ending: Ending, *, is_drained: bool) -> JobState | None:
    """Return the next move of a job that is ending, or None while it waits or once it has arrived."""
    if job.state is ending.to:
        return None
    if is_drained:
        return _step_towards(job.state, ending.to)
    may_go = job.state in (JobState.STARTING, JobState.RUNNING, JobState.PAUSING)
    return ending.via if ending.via is not None and may_go and job.state is not ending.via else None


# A move that the table does not list directly passes through a state that is true on the way.
_DETOURS = {
    (JobState.QUEUED, JobState.COMPLETED): JobState.STARTING,
    (JobState.STARTING, JobState.COMPLETED): JobState.RUNNING,
    (JobState.PAUSED, JobState.COMPLETED): JobState.QUEUED,
    (JobState.STARTING, JobState.CANCELLED): JobState.CANCELLING,
    (JobState.RUNNING, JobState.CANCELLED): JobState.CANCELLING,
    (JobState.PAUSING, JobState.CANCELLED): JobState.CANCELLING,
    (JobState.STARTING, JobState.PAUSED): JobState.PAUSING,
    (JobState.RUNNING, JobState.PAUSED): JobState.PAUSING,
}


def _step_towards(state: JobState, target: JobState) -> JobState:
    return _DETOURS.get((state, target), target)
