"""States of rollout groups, sessions, evaluations and batches, whose rows the data plane owns."""

from enum import StrEnum

from seamlessflow.core.lifecycle.table import TransitionTable


class GroupState(StrEnum):
    """open: some sessions have no outcome yet; ready: may be trained; batched: in a numbered batch;
    dropped: never trained.

    Groups of held-out tasks have their own states, so training and admission never count them.
    evaluating: some sessions have no outcome yet; evaluated: all have one.
    """

    OPEN = "open"
    READY = "ready"
    BATCHED = "batched"
    DROPPED = "dropped"
    EVALUATING = "evaluating"
    EVALUATED = "evaluated"


# Groups in these states have running sessions.
RUNNING_GROUP_STATES = frozenset({GroupState.OPEN, GroupState.EVALUATING})


class DropCause(StrEnum):
    """Why a group is never trained. no_contrast: its rewards are all equal, so dynamic sampling
    replaces it."""

    TOO_FEW_REWARDED = "too_few_rewarded"
    NO_CONTRAST = "no_contrast"
    STALE = "stale"


class SessionState(StrEnum):
    """open: can take turns; closed: has an outcome; failed: an infrastructure failure, so there is no outcome."""

    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


class EvaluationState(StrEnum):
    """running: some groups have no outcome yet; finished: the version is evaluated; cancelled: its job ended first."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class BatchState(StrEnum):
    """leased: given to a trainer; applied: contained in a published version; forgotten: contained in a durable
    checkpoint, so its payload is deleted."""

    LEASED = "leased"
    APPLIED = "applied"
    FORGOTTEN = "forgotten"


GROUP_MOVES = TransitionTable(
    "rollout group",
    {
        GroupState.OPEN: frozenset({GroupState.READY, GroupState.DROPPED}),
        GroupState.READY: frozenset({GroupState.BATCHED, GroupState.DROPPED}),
        GroupState.BATCHED: frozenset(),
        GroupState.DROPPED: frozenset(),
        GroupState.EVALUATING: frozenset({GroupState.EVALUATED}),
        GroupState.EVALUATED: frozenset(),
    },
)
SESSION_MOVES = TransitionTable(
    "session",
    {
        SessionState.OPEN: frozenset({SessionState.CLOSED, SessionState.FAILED}),
        SessionState.CLOSED: frozenset(),
        SessionState.FAILED: frozenset(),
    },
)
EVALUATION_MOVES = TransitionTable(
    "evaluation",
    {
        EvaluationState.RUNNING: frozenset({EvaluationState.FINISHED, EvaluationState.CANCELLED}),
        EvaluationState.FINISHED: frozenset(),
        EvaluationState.CANCELLED: frozenset(),
    },
)
BATCH_MOVES = TransitionTable(
    "batch",
    {
        BatchState.LEASED: frozenset({BatchState.APPLIED, BatchState.FORGOTTEN}),
        BatchState.APPLIED: frozenset({BatchState.FORGOTTEN}),
        BatchState.FORGOTTEN: frozenset(),
    },
)
