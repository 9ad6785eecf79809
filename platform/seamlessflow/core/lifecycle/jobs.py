"""States of a job and the moves between them. A job reaches exactly one terminal state.

No failure ends a job: the platform pauses it, with the reason, and it goes on once a person has mended what failed.
Such a job *needs attention*: a client that waits for it must not wait on.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from seamlessflow.core.lifecycle.table import TransitionTable


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class DesiredJobState(StrEnum):
    """The state that a person asked for. The scheduler moves the job there."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


_S = JobState
JOB_MOVES = TransitionTable(
    "job",
    {
        _S.QUEUED: frozenset({_S.STARTING, _S.PAUSED, _S.CANCELLED}),
        _S.STARTING: frozenset({_S.RUNNING, _S.QUEUED, _S.PAUSING, _S.CANCELLING}),
        _S.RUNNING: frozenset({_S.QUEUED, _S.PAUSING, _S.CANCELLING, _S.COMPLETED}),
        _S.PAUSING: frozenset({_S.PAUSED, _S.CANCELLING, _S.COMPLETED}),
        _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
        _S.CANCELLING: frozenset({_S.CANCELLED}),
        _S.COMPLETED: frozenset(),
        _S.CANCELLED: frozenset(),
    },
)
TERMINAL_JOB_STATES = JOB_MOVES.terminal
ACTIVE_JOB_STATES = frozenset({_S.STARTING, _S.RUNNING, _S.PAUSING, _S.CANCELLING})
PAUSED_JOB_STATES = frozenset({_S.PAUSING, _S.PAUSED})


class PausedBy(StrEnum):
    """Who asked for a pause. A job that the platform paused needs a person, who finds the reason in it."""

    PLATFORM = "platform"
    PERSON = "person"


def ran_for(started_at: datetime | None, until: datetime, paused_for: timedelta) -> timedelta | None:
    """Return how long a job has run until its end, its pause or now, without the time that it was paused; None before
    it started."""
    return None if started_at is None else max(until - started_at - paused_for, timedelta(0))


def paused_by(state: JobState, desired: DesiredJobState, pause_reason: str) -> PausedBy | None:
    """Return who paused a job; None if it is not paused or was asked to resume. `pause_reason`: the platform's own."""
    if state not in PAUSED_JOB_STATES or desired is not DesiredJobState.PAUSE:
        return None
    return PausedBy.PLATFORM if pause_reason else PausedBy.PERSON
