"""States of a job and the moves between them. A job reaches exactly one terminal state."""

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
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class DesiredJobState(StrEnum):
    """The state that a person asked for. The scheduler moves the job there."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


_S = JobState
JOB_MOVES = TransitionTable(
    "job",
    {
        _S.QUEUED: frozenset({_S.STARTING, _S.PAUSED, _S.CANCELLED, _S.FAILED, _S.LOST}),
        _S.STARTING: frozenset({_S.RUNNING, _S.QUEUED, _S.PAUSING, _S.CANCELLING, _S.FAILED, _S.LOST}),
        _S.RUNNING: frozenset({_S.QUEUED, _S.PAUSING, _S.CANCELLING, _S.COMPLETED, _S.FAILED, _S.LOST}),
        _S.PAUSING: frozenset({_S.PAUSED, _S.CANCELLING, _S.COMPLETED, _S.FAILED, _S.LOST}),
        _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED, _S.FAILED, _S.LOST}),
        _S.CANCELLING: frozenset({_S.CANCELLED, _S.FAILED, _S.LOST}),
        _S.COMPLETED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
        _S.LOST: frozenset(),
    },
)
TERMINAL_JOB_STATES = JOB_MOVES.terminal
ACTIVE_JOB_STATES = frozenset({_S.STARTING, _S.RUNNING, _S.PAUSING, _S.CANCELLING})
