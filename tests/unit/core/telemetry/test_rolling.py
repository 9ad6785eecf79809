"""Rolled-up intervals say the same about the same time."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.core.telemetry.rolling import MergedInterval, intervals_merge, rolled_width

START = datetime(2026, 1, 1, tzinfo=UTC)
kinds = st.sampled_from([("serving", ""), ("idle", "no_job"), ("idle", "no_groups"), ("training", "")])


@st.composite
def ledgers(draw: st.DrawFn) -> list[MergedInterval]:
    """Adjacent intervals."""
    rows, begin = [], START
    for _ in range(draw(st.integers(0, 12))):
        (state, cause), length = draw(kinds), draw(st.integers(1, 90))
        end = begin + timedelta(seconds=length)
        mean = draw(st.one_of(st.none(), st.floats(0, 64)))
        rows.append(MergedInterval(state, cause, None, None, begin, end, mean, 4, 1))
        begin = end
    return rows


@settings(max_examples=60)
@given(ledgers())
def test_merged_intervals_are_adjacent_and_keep_every_duration_and_occupancy(
    rows: list[MergedInterval],
) -> None:
    merged = intervals_merge(rows)
    assert all(a.ended_at == b.started_at for a, b in pairwise(merged))
    assert [r.started_at for r in rows[:1]] == [r.started_at for r in merged[:1]]
    assert [r.ended_at for r in rows[-1:]] == [r.ended_at for r in merged[-1:]]
    assert durations(merged) == durations(rows)
    assert occupancy(merged) == pytest.approx(occupancy(rows))
    assert sum(row.num_intervals for row in merged) == len(rows)
    again = intervals_merge(merged)
    assert (len(again), durations(again)) == (len(merged), durations(merged))
    assert occupancy(again) == pytest.approx(occupancy(merged))


def durations(rows: list[MergedInterval]) -> dict[tuple[str, str], timedelta]:
    total: dict[tuple[str, str], timedelta] = defaultdict(timedelta)
    for row in rows:
        total[row.state, row.cause] += row.ended_at - row.started_at
    return dict(total)


def occupancy(rows: list[MergedInterval]) -> dict[tuple[str, str], float]:
    """Return the mean over the measured time of each kind."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        if row.mean_in_flight is not None:
            seconds = (row.ended_at - row.started_at).total_seconds()
            sums[row.state, row.cause][0] += seconds
            sums[row.state, row.cause][1] += seconds * row.mean_in_flight
    return {kind: total / seconds for kind, (seconds, total) in sums.items()}


def test_full_engines_are_not_mixed_with_others() -> None:
    means = (4.0, 1.0, 4.0, None)
    rows = [
        MergedInterval("serving", "", None, None, *hour_part(place), mean, 4, 1)
        for place, mean in enumerate(means)
    ]
    assert [(row.mean_in_flight, row.num_intervals) for row in intervals_merge(rows)] == [
        (4.0, 2),
        (1.0, 1),
        (None, 1),
    ]


def hour_part(place: int) -> tuple[datetime, datetime]:
    return START + timedelta(minutes=place), START + timedelta(minutes=place + 1)


def test_few_points_are_left_alone() -> None:
    assert rolled_width(0, 10_000, 400) == 1
    assert rolled_width(0, 10_000, 10_001) == 32
