"""The ledger recorder: intervals that touch, sum to elapsed time, and survive a control plane that does not answer."""

import itertools
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.supervisor.ledger import LedgerRecorder, Reading

JOB = UUID(int=7)
SERVING = Reading(LedgerState.SERVING, None, JOB)
NO_REQUESTS = Reading(LedgerState.IDLE, IdleCause.NO_REQUESTS, JOB)
TRAINING = Reading(LedgerState.TRAINING, None, JOB)
READINGS = (SERVING, NO_REQUESTS, TRAINING)


def recorder(**options: float) -> LedgerRecorder:
    limits = {"shortest_s": 0.005, "longest_s": 10.0, **options}
    return LedgerRecorder(now_s=100.0, reading=NO_REQUESTS, **limits)  # type: ignore[arg-type]


def touches(intervals: list[Interval]) -> bool:
    pairs = itertools.pairwise(intervals)
    return all(a.end_s == b.start_s and a.seq + 1 == b.seq for a, b in pairs)


events = st.lists(
    st.tuples(
        st.floats(min_value=0, max_value=20, allow_subnormal=False),
        st.sampled_from(READINGS),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(events, st.integers(2, 5), st.integers(1, 4))
def test_any_events_give_intervals_that_touch_and_sum_to_elapsed_time(
    steps: list[tuple[float, Reading, int]], num_buffered_max: int, num_sent_at_once: int
) -> None:
    ledger = recorder(num_buffered_max=num_buffered_max)
    now_s, stored = 100.0, list[Interval]()
    for wait_s, reading, num_in_flight in steps:
        now_s += wait_s
        ledger.observe(now_s=now_s, reading=reading, num_in_flight=num_in_flight)
        if num_in_flight > 6:  # now and then a heartbeat goes through
            stored += ledger.batch(num_max=num_sent_at_once)
            ledger.acknowledge(len(stored))
    while pending := ledger.batch(num_max=num_sent_at_once):
        stored += pending
        ledger.acknowledge(len(stored))
    assert touches(stored)
    assert all(interval.end_s > interval.start_s for interval in stored)
    assert all((interval.cause is not None) == (interval.state is LedgerState.IDLE) for interval in stored)
    assert (stored[0].start_s if stored else ledger.open_since_s) == 100.0
    covered_s = sum(interval.end_s - interval.start_s for interval in stored) + now_s - ledger.open_since_s
    assert covered_s == pytest.approx(now_s - 100.0)


@given(events)
def test_a_count_alone_is_recorded_as_the_same_reading_with_another_count(
    steps: list[tuple[float, Reading, int]],
) -> None:
    recounting, observing, now_s = recorder(), recorder(), 100.0
    for wait_s, reading, num_in_flight in steps:
        now_s += wait_s
        if num_in_flight > 2:
            recounting.recount(now_s=now_s, num_in_flight=num_in_flight)
            reading = observing.open_reading
        else:
            recounting.observe(now_s=now_s, reading=reading, num_in_flight=num_in_flight)
        copied = Reading(reading.state, reading.cause, reading.job_id)
        observing.observe(now_s=now_s, reading=copied, num_in_flight=num_in_flight)
    assert recounting.batch(num_max=99) == observing.batch(num_max=99)


def test_what_was_sent_once_never_changes_until_it_is_acknowledged() -> None:
    ledger = recorder(num_buffered_max=2)
    for step in range(1, 5):
        ledger.observe(now_s=100.0 + step, reading=READINGS[step % 3])
    first = ledger.batch(num_max=2)
    for step in range(5, 50):
        ledger.observe(now_s=100.0 + step, reading=READINGS[step % 3])
    assert ledger.batch(num_max=2) == first
    ledger.acknowledge(2)
    rest = ledger.batch(num_max=99)
    assert touches([*first, *rest])
    assert len(rest) == 2  # the rest was merged, not lost
    assert rest[-1].end_s == 149.0


def test_mean_in_flight_is_weighted_by_time() -> None:
    ledger = recorder()
    ledger.observe(now_s=101.0, reading=SERVING, num_in_flight=1)
    ledger.observe(now_s=102.0, reading=SERVING, num_in_flight=4)
    ledger.observe(now_s=105.0, reading=NO_REQUESTS)
    idle, serving = ledger.batch(num_max=9)
    assert idle.mean_in_flight is None
    assert serving.mean_in_flight == pytest.approx((1 * 1 + 3 * 4) / 4)


def test_fast_flapping_keeps_its_proportions_in_few_intervals() -> None:
    ledger = recorder()
    now_s = 100.0
    for _ in range(1000):  # three quarters serving, in turns of 4 ms
        ledger.observe(now_s=now_s, reading=SERVING, num_in_flight=1)
        now_s += 0.003
        ledger.observe(now_s=now_s, reading=NO_REQUESTS)
        now_s += 0.001
    intervals = ledger.batch(num_max=9999)
    serving_s = sum(i.end_s - i.start_s for i in intervals if i.state is LedgerState.SERVING)
    assert serving_s == pytest.approx(3.0, rel=0.05)
    assert len(intervals) <= 800


def test_a_long_state_is_cut_so_that_sudden_death_loses_little() -> None:
    ledger = recorder()
    ledger.observe(now_s=100.0, reading=TRAINING)
    for second in range(1, 31):
        ledger.observe(now_s=100.0 + second, reading=TRAINING)
    assert [interval.end_s for interval in ledger.batch(num_max=9)] == [110.0, 120.0, 130.0]


def test_idle_without_a_cause_is_refused() -> None:
    with pytest.raises(ValueError, match="idle cannot have the cause None"):
        Reading(LedgerState.IDLE)
