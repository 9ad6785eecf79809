"""Which jobs have no use for machines now, although they are at work: agents outside the platform may be away.

A job is unused if it has had no open session for UNUSED_AFTER_S and no batch to train. Others that wait and have a use
for machines go before it: it gives way to them at once, without a quantum, and waits behind them. Invariants: no job
gives way so to one that is unused itself, so two of them do not push each other out; a pause between two sessions
that is shorter than UNUSED_AFTER_S changes nothing; a job that gets a session while it waits is served like any other,
and then has a whole quantum.
"""

from seamlessflow.core.scheduling.snapshot import JobView

UNUSED_AFTER_S = 5.0  # without an open session


def is_unused(job: JobView) -> bool:
    """Return whether the job has no use for machines now."""
    return job.has_no_sessions and not job.num_due_batches and not job.awaits_evaluation


def yields_to(job: JobView, first: JobView) -> bool:
    """Return whether a job at work gives way at once to the first that waits."""
    return is_unused(job) and not is_unused(first)


def has_no_sessions(closed_s: float | None, *, at_work_s: float, published_s: float) -> bool:
    """Return whether agents outside the platform have been away for long enough.

    `closed_s`: how long ago the last session was closed, if none is open; None: one is. A job that has just been
    admitted or has just published gets as much time for its next session.
    """
    return closed_s is not None and min(closed_s, at_work_s, published_s) > UNUSED_AFTER_S
