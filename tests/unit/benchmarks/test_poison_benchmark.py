"""The poison benchmark's own arithmetic: failures are as frequent as asked, and its test of lengths sees a shift."""

import random

import pytest

from tests.benchmarks.poison import ks_p
from tests.benchmarks.poison_agents import MAX_TURNS, MEAN_TURNS, MEDIAN_TURNS, Faults, stops_after


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_the_share_of_failed_attempts_is_as_asked_with_the_four_kinds_in_equal_parts(share: float) -> None:
    faults = Faults(share)
    of_grading = faults.of_grading / (1 - faults.of_grading)
    of_turns = faults.of_turn * MEAN_TURNS  # a turn that was sampled is not sampled again
    begun = 1 + of_grading + of_turns
    of_setup = begun * faults.of_setup / (1 - faults.of_setup)
    failed = of_grading + of_turns + of_setup
    assert failed / (1 + failed) == pytest.approx(share)
    assert of_grading == pytest.approx(of_turns / 2) == pytest.approx(of_setup)


def test_sessions_have_a_long_tail_and_end() -> None:
    left, lengths = 1.0, []
    for turn in range(1, MAX_TURNS + 1):
        lengths.append(left * stops_after(turn))
        left -= lengths[-1]
    assert left == pytest.approx(0.0)
    assert sum(lengths[: int(MEDIAN_TURNS)]) == pytest.approx(0.5, abs=0.1)
    mean = sum(turn * chance for turn, chance in enumerate(lengths, start=1))
    assert mean == pytest.approx(MEAN_TURNS, rel=0.03)


def test_the_comparison_of_lengths_sees_a_shift_and_only_that() -> None:
    chance = random.Random(5)
    draws = [[chance.lognormvariate(median, 1.0) for _ in range(2000)] for median in (0.0, 0.0, 0.3)]
    assert ks_p(draws[0], draws[0]) == 1.0
    assert ks_p(draws[0], draws[1]) > 0.05
    assert ks_p(draws[0], draws[2]) < 1e-6
