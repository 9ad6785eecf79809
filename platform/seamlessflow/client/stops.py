"""What ends the wait for a job before it completes: a person cancelled it, or the platform paused it.

Takes a job as REST returns it.
"""

from seamlessflow.client.errors import Json
from seamlessflow.core.lifecycle.jobs import JobState, PausedBy


class JobStopped(Exception):
    """The awaited job was cancelled, or the platform paused it because something failed."""

    def __init__(self, job: Json) -> None:
        super().__init__(_stop_text(job))
        self.job = job


def _stop_text(job: Json) -> str:
    reason = job["state_reason"] or "no reason given"
    if not needs_attention(job):
        return f"job {job['id']} was {job['state']}: {reason}"
    return (
        f"the platform paused job {job['id']}: {reason}. Mend what failed and continue with `seamlessflow jobs resume "
        f"{job['id']}`, or end it with `seamlessflow jobs cancel {job['id']}`"
    )


def needs_attention(job: Json) -> bool:
    """Whether the platform paused the job, so that it continues only if a person resumes it."""
    return bool(job["state"] == JobState.PAUSED and job["paused_by"] == PausedBy.PLATFORM)
