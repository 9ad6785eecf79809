"""Decides whether a job must pause because its sessions end badly together, and describes the evidence.

In: the newest ends of a job's sessions since it was last resumed, newest first. Out: a sentence with the evidence, or
None. A policy that is slow at hard tasks trips nothing: its timeouts do not rise together, and its failures differ.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.core.environment.failures import FailureKind

FIRST_EQUAL = 16  # equal failures before the job's first outcome
LATER_EQUAL = 64  # equal failures in a row later on, over several groups, so that one bad task trips nothing
RECENT = 32  # ends that are compared with those before them
HIGH_RATE, LOW_RATE = 0.5, 0.2  # of timeouts or failed gradings, now and before
MAX_ENDS = 256
# A machine that goes takes all its sessions with it, and a task's own time is judged by the rates.
_MAY_REPEAT = frozenset(FailureKind) - {FailureKind.MACHINE, FailureKind.TIMEOUT}
_VARYING = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class End:
    """How a session ended. `failure`: empty for an outcome."""

    group: str
    machine: str = ""
    failure: str = ""
    is_timeout: bool = False
    reason: str = ""


def breach_of(ends: Sequence[End]) -> str | None:
    """Return why the job must pause; None if it may go on."""
    return _equal_failures(ends) or _failing_judge(ends) or _timeouts_together(ends)


def _equal_failures(ends: Sequence[End]) -> str | None:
    judged = [end for end in ends if end.failure != FailureKind.MACHINE]
    row = _equal_row(judged)
    is_first = row == len(judged) and row >= FIRST_EQUAL
    if not is_first and not (row >= LATER_EQUAL and len({end.group for end in judged[:row]}) > 1):
        return None
    newest = judged[0]
    where = "the first" if is_first else "the last"
    return f"{where} {row} sessions failed with the same error ({newest.failure}): {newest.reason}"


def _equal_row(ends: Sequence[End]) -> int:
    """Return how many of the newest ends are failures of the same kind with the same text, numbers aside."""
    if not ends or ends[0].failure not in _MAY_REPEAT:
        return 0
    first = _pattern(ends[0])
    return next((num for num, end in enumerate(ends) if _pattern(end) != first), len(ends))


def _pattern(end: End) -> tuple[str, str]:
    return end.failure, _VARYING.sub("#", end.reason)


def _failing_judge(ends: Sequence[End]) -> str | None:
    recent = ends[:RECENT]
    failed = [end for end in recent if end.failure == FailureKind.GRADING]
    if len(recent) < RECENT or len(failed) < HIGH_RATE * RECENT:
        return None
    return f"the judge failed {len(failed)} of the last {RECENT} sessions; the last error: {failed[0].reason}"


def _timeouts_together(ends: Sequence[End]) -> str | None:
    by_machine: defaultdict[str, list[End]] = defaultdict(list)
    for end in ends:
        by_machine[end.machine].append(end)
    for machine, own in by_machine.items():
        recent = own[:RECENT]
        others = [end for end in ends if end.machine != machine] or own[RECENT:]
        if len(recent) < RECENT or len(others) < RECENT:
            continue
        rate, usual = _timeout_rate(recent), _timeout_rate(others)
        if rate >= HIGH_RATE and usual <= LOW_RATE:
            than = f"{usual:.0%} of its sessions before" if len(by_machine) == 1 else f"{usual:.0%} elsewhere"
            return f"{rate:.0%} of the last {RECENT} sessions on machine {machine} timed out, against {than}"
    return None


def _timeout_rate(ends: Sequence[End]) -> float:
    return sum(_is_timeout(end) for end in ends) / len(ends)


def _is_timeout(end: End) -> bool:
    return end.is_timeout or end.failure == FailureKind.TIMEOUT
