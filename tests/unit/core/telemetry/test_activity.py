"""Shares of time: how full engines were, in one order, adding up to the whole."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.telemetry.activity import KINDS, PRODUCTIVE_STATES, Lulls, Span, activity, span_seconds
from seamlessflow.core.types.ledger import IdleCause, LedgerState

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def serving(start: float, end: float, in_flight: float | None, num_slots: int | None = 64) -> Span:
    return Span("serving", "", at(start), at(end), in_flight, num_slots)


def lulls(*edges: tuple[float, float | None]) -> Lulls:
    return Lulls([(at(begin), None if end is None else at(end)) for begin, end in edges])


@pytest.mark.parametrize(
    "in_flight,kind",
    [(64.0, "full"), (57.6, "full"), (57.5, "partly_filled"), (1.0, "partly_filled"), (90.0, "full")],
)
def test_an_engine_is_full_from_nine_tenths_of_its_slots(in_flight: float, kind: str) -> None:
    seconds = dict(span_seconds(serving(0, 10, in_flight), Lulls()))

    assert {key: value for key, value in seconds.items() if value} == {("serving", kind): 10.0}


def test_a_partly_filled_engine_in_a_lull_is_a_draining_tail() -> None:
    """The lulls 2–4 and from 7 on overlap the span 3–10 for 1 s and 3 s."""
    seconds = dict(span_seconds(serving(3, 10, 5.0), lulls((0, 1), (2, 4), (7, None))))

    assert seconds == {("serving", "draining_tail"): 4.0, ("serving", "partly_filled"): 3.0}


def test_a_full_engine_in_a_lull_is_full() -> None:
    assert dict(span_seconds(serving(0, 10, 64.0), lulls((0, None)))) == {("serving", "full"): 10.0}


@pytest.mark.parametrize("span", [serving(0, 10, None), serving(0, 10, 3.0, None)])
def test_an_occupancy_that_was_not_measured_is_not_invented(span: Span) -> None:
    assert dict(span_seconds(span, lulls((0, None)))) == {("serving", ""): 10.0}


def test_occupancy_is_requests_divided_by_slots_over_the_time_served() -> None:
    """There are (64 · 10 + 16 · 30) requests in flight and (64 · 10 + 32 · 30) slots."""
    spans = [serving(0, 10, 64.0), serving(10, 40, 16.0, 32), Span("training", "", at(40), at(100))]

    told = activity((span, Lulls()) for span in spans)

    assert told.occupancy == pytest.approx((640 + 480) / (640 + 960))
    assert told.productive_share == pytest.approx(1.0)
    assert [(total.cause, total.mean_in_flight) for total in told.totals] == [
        ("full", 64.0),
        ("partly_filled", 16.0),
        ("", None),
    ]


def test_requests_that_wait_at_an_engine_fill_no_slot() -> None:
    """3.87 requests in flight at two slots, as in an engine whose queue is long, were 194 % full."""
    spans = [serving(0, 10, 3.87, 2), serving(10, 20, 1.0, 2)]

    told = activity((span, Lulls()) for span in spans)

    assert told.occupancy == pytest.approx((2 * 10 + 1 * 10) / 40)
    assert told.waiting_per_slot == pytest.approx(1.87 * 10 / 40)


@given(
    st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0, 1e4), st.integers(1, 512)), min_size=1, max_size=20)
)
def test_occupancy_and_what_waits_are_arithmetic_on_the_spans(
    pieces: list[tuple[float, float, int]],
) -> None:
    spans, end = [], 0.0
    for duration, in_flight, num_slots in pieces:
        spans.append(serving(end, end + duration, in_flight, num_slots))
        end += duration

    told = activity((span, Lulls()) for span in spans)

    assert told.occupancy is not None
    assert told.waiting_per_slot is not None
    assert 0 <= told.occupancy <= 1
    slot_s = sum(span.duration_s * (span.num_slots or 0) for span in spans)
    request_s = sum(span.duration_s * (span.mean_in_flight or 0) for span in spans)
    assert (told.occupancy + told.waiting_per_slot) * slot_s == pytest.approx(request_s, rel=1e-6)


def test_every_state_and_cause_has_its_place() -> None:
    states = {state for state, _ in KINDS}
    causes = {cause for state, cause in KINDS if state == LedgerState.IDLE}

    assert set(map(str, LedgerState)) <= states
    assert causes == set(map(str, IdleCause))
    first_other = next(place for place, (state, _) in enumerate(KINDS) if state not in PRODUCTIVE_STATES)
    assert all(state not in PRODUCTIVE_STATES for state, _ in KINDS[first_other:])


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.floats(0.001, 1e5), st.floats(0, 64)), min_size=1, max_size=30
    ),
    st.lists(st.floats(0, 1e6), max_size=8, unique=True),
)
def test_shares_add_up_to_one_in_one_order(
    pieces: list[tuple[tuple[str, str], float, float]], edges: list[float]
) -> None:
    spans, end = [], 0.0
    for (state, cause), duration, in_flight in pieces:
        is_serving = state == LedgerState.SERVING
        spans.append(
            Span(
                state,
                "" if is_serving else cause,
                at(end),
                at(end + duration),
                in_flight if is_serving else None,
                64 if is_serving else None,
            )
        )
        end += duration
    edges.sort()
    pauses = lulls(*zip(edges[::2], edges[1::2], strict=False))

    told = activity((span, pauses) for span in spans)

    assert sum(total.share for total in told.totals) == pytest.approx(1.0)
    assert sum(total.duration_s for total in told.totals) == pytest.approx(end, rel=1e-6, abs=1e-4)
    places = [KINDS.index((total.state, total.cause)) for total in told.totals]
    assert places == sorted(places)
    productive = sum(total.share for total in told.totals if total.state in PRODUCTIVE_STATES)
    assert told.productive_share == pytest.approx(productive)
