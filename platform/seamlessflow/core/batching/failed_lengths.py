"""Compares the lengths of sessions that failed with those of sessions that have an outcome.

A failed session runs anew, so if long sessions fail more often, what is trained is shorter than what the policy says.
In: the failed attempts and the lengths of the outcomes of one batch. Out: metrics, and a sentence if they differ by
more than chance.
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


def failure_metrics(failed: Sequence[FailedSession]) -> dict[str, float]:
    """Return the number of failed attempts by kind and their mean length when they failed."""
    counts = Counter(session.kind or "other" for session in failed)
    metrics = {"rollout/num_failed": float(len(failed))}
    metrics |= {f"rollout/num_failed/{kind}": float(num) for kind, num in counts.items()}
    if failed:
        lengths = [session.num_sampled_tokens for session in failed]
        metrics["rollout/failed_length_mean"] = float(np.mean(lengths))
    return metrics


def length_bias(failed: Sequence[FailedSession], outcome_lengths: Sequence[int]) -> str | None:
    """Return a warning if sessions failed at other lengths than those with an outcome; None if chance explains it."""
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
        f"{np.mean(outcome_lengths):,.0f}: failures depend on the length, so what is trained may be biased"
    )
