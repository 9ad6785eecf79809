"""Rolls up records: fewer rows that say the same about a longer time.

`intervals_merge` takes touching intervals of a machine's ledger, in order; it returns touching intervals over the same
time, at most one for each state, cause, job and fill of the engine (full, less, not measured). Invariants: each of
these keeps its duration and the time integral of its occupancy; the first start and the last end stay. `rolled_width`
takes the steps of a metric's points and returns the width of the grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import mul
from typing import Protocol
from uuid import UUID

from seamlessflow.core.telemetry.activity import FULL_OCCUPANCY
from seamlessflow.core.telemetry.buckets import bucket_width

# Charts ask for this many rows of a metric: a viewer would not see more, and would notice fewer.
ROLLED_BUCKETS = 500


class Interval(Protocol):
    """An interval of a ledger, which is only read."""

    @property
    def state(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def job_id(self) -> UUID | None: ...
    @property
    def project_id(self) -> UUID | None: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def ended_at(self) -> datetime: ...
    @property
    def mean_in_flight(self) -> float | None: ...
    @property
    def num_slots(self) -> int | None: ...
    @property
    def num_intervals(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class MergedInterval:
    """A merged interval. `num_intervals`: the number of intervals that it replaces."""

    state: str
    cause: str
    job_id: UUID | None
    project_id: UUID | None
    started_at: datetime
    ended_at: datetime
    mean_in_flight: float | None
    num_slots: int | None
    num_intervals: int


def rolled_width(first: int, last: int, num_rows: int) -> int:
    """Return the number of steps per bucket; 1 if rolling up gains nothing."""
    return bucket_width(first, last, ROLLED_BUCKETS) if num_rows > ROLLED_BUCKETS else 1


def intervals_merge(rows: Sequence[Interval]) -> list[MergedInterval]:
    """Merge the rows, in the order in which each state, cause and job first appeared."""
    by_kind: dict[tuple[object, ...], list[Interval]] = {}
    for row in rows:
        by_kind.setdefault((row.state, row.cause, row.job_id, row.num_slots, _fill(row)), []).append(row)
    merged: list[MergedInterval] = []
    begin = rows[0].started_at if rows else None
    for members in by_kind.values():
        assert begin is not None  # because there are rows
        one = _merge(members, begin)
        merged.append(one)
        begin = one.ended_at
    return merged


def _fill(row: Interval) -> bool | None:
    """Whether its engine was full; None if not measured. Full and other intervals are not merged."""
    if row.mean_in_flight is None:
        return None
    return row.num_slots is not None and row.mean_in_flight >= FULL_OCCUPANCY * row.num_slots


def _merge(members: Sequence[Interval], begin: datetime) -> MergedInterval:
    first = members[0]
    durations = [row.ended_at - row.started_at for row in members]
    return MergedInterval(
        state=first.state,
        cause=first.cause,
        job_id=first.job_id,
        project_id=first.project_id,
        started_at=begin,
        ended_at=begin + sum(durations, timedelta()),
        mean_in_flight=_mean_in_flight(members),
        num_slots=first.num_slots,
        num_intervals=sum(row.num_intervals or 1 for row in members),
    )


def _mean_in_flight(members: Sequence[Interval]) -> float | None:
    """Return the average weighted by time; either all of them are measured or none is."""
    seconds = [(row.ended_at - row.started_at).total_seconds() for row in members]
    means = [row.mean_in_flight for row in members if row.mean_in_flight is not None]
    if not means or not sum(seconds):
        return None
    integral: float = sum(map(mul, seconds, means))
    return integral / sum(seconds)
