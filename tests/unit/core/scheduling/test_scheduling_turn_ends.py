"""When a turn to train ends, and when a trainer expects its next batch."""

import pytest

from seamlessflow.core.scheduling.turn_ends import (
    PATIENCE_S,
    BatchArrivalEstimator,
    is_fulfilled,
    patience_s,
)


def estimator_of(*arrivals_s: float) -> BatchArrivalEstimator:
    estimator = BatchArrivalEstimator(num_intervals=2)
    for arrival_s in arrivals_s:
        estimator.arrived(arrival_s)
    return estimator


def test_without_two_batches_nothing_is_known_and_nothing_is_waited_for() -> None:
    assert estimator_of().expected_wait_s(5.0) == 0.0
    assert estimator_of(4.0).expected_wait_s(5.0) == 0.0


def test_the_wait_is_what_is_left_of_the_mean_interval() -> None:
    assert estimator_of(10.0, 11.0, 14.0).expected_wait_s(14.5) == 1.5


def test_a_batch_that_is_late_is_expected_at_once() -> None:
    assert estimator_of(10.0, 11.0).expected_wait_s(13.0) == 0.0


def test_old_intervals_are_forgotten() -> None:
    assert estimator_of(0.0, 100.0, 101.0, 102.0).expected_wait_s(102.25) == 0.75


@pytest.mark.parametrize(
    "num_published, num_batches, expected", [(0, 1, False), (1, 1, True), (9, None, False)]
)
def test_a_turn_is_fulfilled_once_it_has_published_what_it_was_leased_for(
    num_published: int, num_batches: int | None, expected: bool
) -> None:
    assert is_fulfilled(num_published, num_batches) is expected


@pytest.mark.parametrize("now_s, expected_s", [(13.95, PATIENCE_S), (20.0, PATIENCE_S), (12.0, 0.0)])
def test_a_turn_waits_only_for_a_batch_that_is_due_sooner_than_a_hand_over_takes(
    now_s: float, expected_s: float
) -> None:
    assert patience_s(estimator_of(10.0, 12.0), now_s) == expected_s
