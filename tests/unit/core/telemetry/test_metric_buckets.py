"""The grid on which metric points are bucketed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.telemetry.buckets import bucket_width

STEPS = st.integers(0, 2**62)


@given(STEPS, STEPS, st.integers(1, 5_000))
def test_no_more_buckets_are_returned_than_requested(one: int, other: int, num_buckets: int) -> None:
    first, last = sorted((one, other))

    width = bucket_width(first, last, num_buckets)

    assert last // width - first // width < num_buckets
    half = width // 2
    assert width == 1 or last // half - first // half >= num_buckets


@given(STEPS, st.integers(0, 10_000), st.integers(2, 500))
def test_adding_points_does_not_change_older_buckets(first: int, num_steps: int, num_buckets: int) -> None:
    """Widths are powers of two and buckets begin at multiples of them, so a wider bucket contains
    whole narrower ones."""
    before = bucket_width(first, first + num_steps, num_buckets)
    after = bucket_width(first, first + num_steps + 1, num_buckets)

    assert after % before == 0


def test_a_range_that_fits_is_not_bucketed() -> None:
    assert bucket_width(100, 599, 500) == 1
    assert bucket_width(100, 600, 500) == 2


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="steps 2 to 1"):
        bucket_width(2, 1, 10)
