"""Failed attempts are counted by kind, and a warning says so if failures depend on the length."""

import random

from seamlessflow.core.batching.failed_lengths import FailedSession, failure_metrics, length_bias

CHANCE = random.Random(3)


def lengths(num: int, median: float) -> list[int]:
    return [round(CHANCE.lognormvariate(0.0, 1.0) * median) for _ in range(num)]


def test_failures_are_counted_by_kind_with_their_length() -> None:
    failed = [FailedSession("grading", 10), FailedSession("grading", 20), FailedSession("", 60, True)]
    assert failure_metrics(failed) == {
        "rollout/num_failed": 3.0,
        "rollout/num_failed/grading": 2.0,
        "rollout/num_failed/other": 1.0,
        "rollout/num_failed_resumed": 1.0,
        "rollout/failed_length_mean": 30.0,
    }
    assert failure_metrics([]) == {"rollout/num_failed": 0.0}


def test_failures_at_greater_lengths_are_a_stated_bias() -> None:
    failed = [FailedSession("machine", length) for length in lengths(100, 400.0)]
    warning = length_bias(failed, lengths(500, 100.0))
    assert warning is not None
    assert "failures depend on the length" in warning


def test_attempts_that_were_resumed_bias_nothing() -> None:
    failed = [FailedSession("machine", length, is_resumed=True) for length in lengths(100, 400.0)]
    assert length_bias(failed, lengths(500, 100.0)) is None


def test_chance_is_no_bias() -> None:
    seen = [
        length_bias([FailedSession("machine", n) for n in lengths(100, 100.0)], lengths(500, 100.0))
        for _ in range(100)
    ]
    assert sum(warning is not None for warning in seen) <= 3


def test_few_or_equal_lengths_say_nothing() -> None:
    assert length_bias([FailedSession("agent", 9000)] * 15, lengths(500, 100.0)) is None
    assert length_bias([FailedSession("agent", 0)] * 50, [0] * 50) is None
