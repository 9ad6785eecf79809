"""Compares the lengths of sessions that failed with those of sessions that have an outcome.

Where a failed session is sampled anew and long sessions fail more often, trained answers are shorter than those that
the policy says. Where it was resumed, nothing is lost. In: the failed attempts and the lengths of the outcomes of one
batch. Out: metrics, and a sentence if the lengths of attempts that were not resumed differ by more than chance.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MIN_SESSIONS = 16  # of each side, before lengths are compared
MIN_DEVIATIONS = 3.0  # of the difference of the mean logarithms, by Welch's statistic


@dataclass(frozen=True, slots=True)
class FailedSession:
    kind: str
    num_sampled_tokens: int
    is_resumed: bool = False  # the session with the slot's outcome has all of its answers


def failure_metrics(failed: Sequence[FailedSession]) -> dict[str, float]:
    """Return how many attempts failed, in all and by kind, how many were resumed, and their mean length at failure."""
    counts = Counter(session.kind or "other" for session in failed)
    metrics = {"rollout/num_failed": float(len(failed))}
    metrics |= {f"rollout/num_failed/{kind}": float(num) for kind, num in counts.items()}
    if failed:
        metrics["rollout/num_failed_resumed"] = float(sum(session.is_resumed for session in failed))
        lengths = [session.num_sampled_tokens for session in failed]
        metrics["rollout/failed_length_mean"] = float(np.mean(lengths))
    return metrics


def length_bias(failed: Sequence[FailedSession], outcome_lengths: Sequence[int]) -> str | None:
    """Return a warning if sessions failed at other lengths than those with an outcome; None if chance explains it."""
    failed = [session for session in failed if not session.is_resumed]
    if min(len(failed), len(outcome_lengths)) < MIN_SESSIONS:
        return None
    lengths = [session.num_sampled_tokens for session in failed]
    one, two = (np.log1p(np.array(each, dtype=float)) for each in (lengths, outcome_lengths))
    error = math.sqrt(one.var(ddof=1) / len(one) + two.var(ddof=1) / len(two))
    difference = float(one.mean() - two.mean())
    if abs(difference) <= MIN_DEVIATIONS * error or difference == 0:
        return None
    return (
        f"sessions failed after {np.mean(lengths):,.0f} sampled tokens on average, and those with an outcome have "
        f"{np.mean(outcome_lengths):,.0f}: failures depend on the length and these sessions began anew, so what is "
        "trained may be biased (environment.on_failure: 'resume' avoids this where agents repeat their requests)"
    )
