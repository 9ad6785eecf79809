"""States of rollout groups, sessions and batches: the rows that the data plane owns."""

from enum import StrEnum

from seamlessflow.core.lifecycle.table import TransitionTable


class GroupState(StrEnum):
    """open: sessions still lack verdicts; ready: may train; batched: in a numbered batch; dropped: will never train."""

    OPEN = "open"
    READY = "ready"
    BATCHED = "batched"
    DROPPED = "dropped"


class DropCause(StrEnum):
    """Why a group will never train. no_contrast: its rewards are all equal and dynamic sampling replaces it."""

    VERDICTS = "verdicts"
    NO_CONTRAST = "no_contrast"
    STALE = "stale"


class SessionState(StrEnum):
    """open: may take turns; closed: has its verdict; failed: an infrastructure failure, no verdict."""

    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


class BatchState(StrEnum):
    """leased: handed to a trainer; applied: published; forgotten: behind a durable checkpoint, payload dropped."""

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
BATCH_MOVES = TransitionTable(
    "batch",
    {
        BatchState.LEASED: frozenset({BatchState.APPLIED, BatchState.FORGOTTEN}),
        BatchState.APPLIED: frozenset({BatchState.FORGOTTEN}),
        BatchState.FORGOTTEN: frozenset(),
    },
)
