"""Which failed attempt of a slot its next attempt goes on with.

If failed sessions began anew, trained answers would be too short, because long sessions fail more often. So the next
attempt gets the answers that an earlier one recorded, and samples only what follows them. In: the failed attempts of a
slot, oldest first. Out: one of them, or None if the next attempt begins anew. Invariant: what an agent or the task's
time ended is never resumed, because that was no accident.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from seamlessflow.core.environment.failures import UNCHARGED, FailureKind

MAX_STUCK = 64  # failures in a row after the same answers: a judge or a tool may fail at just these
# These have nothing to do with the policy's answers.
_ACCIDENTS = frozenset({FailureKind.MACHINE, FailureKind.SETUP})


class Attempt(Protocol):
    @property
    def failure(self) -> str: ...

    @property
    def num_turns(self) -> int: ...


AttemptT = TypeVar("AttemptT", bound=Attempt)


def attempt_to_resume(earlier: Sequence[AttemptT]) -> AttemptT | None:
    """Return the attempt that got farthest since the last one that began anew; the newest of equals."""
    best: AttemptT | None = None
    num_stuck = 0
    for attempt in attempts_resumable(earlier):
        if best is None or attempt.num_turns > best.num_turns:
            num_stuck = 0
        if best is None or attempt.num_turns >= best.num_turns:
            best = attempt
            num_stuck += attempt.failure not in _ACCIDENTS
        if num_stuck == MAX_STUCK:
            best, num_stuck = None, 0
    return best


def attempts_resumable(earlier: Sequence[AttemptT]) -> Sequence[AttemptT]:
    """Return the attempts since the last one that the agent broke, or that its time ended."""
    charged = (number for number, attempt in enumerate(earlier, 1) if attempt.failure not in UNCHARGED)
    return earlier[max(charged, default=0) :]
