"""When a trainer expects its next batch."""

from seamlessflow_workers.train.trainer import BatchArrivalEstimator


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
