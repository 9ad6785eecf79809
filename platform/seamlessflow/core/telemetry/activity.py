"""How machines spent their time: how full engines were, and the order in which kinds of time are shown.

Takes spans of ledgers and returns seconds by kind. A kind is a state with its detail: the cause of idling, or how full
a serving engine was. Invariant: the seconds of all kinds add up to the seconds of all spans.

Occupancy is the fraction of an engine's slots (the requests that it decodes at once) that requests fill. It never
passes 1, because all other requests in flight wait at the engine. Serving at `FULL_OCCUPANCY` or more is *full*. Below
it, it is a *draining tail* while nothing more of the job waits (a lull), and *partly filled* otherwise.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from seamlessflow.core.types.ledger import IdleCause, LedgerState

FULL_OCCUPANCY = 0.9
PRODUCTIVE_STATES = (LedgerState.SERVING, LedgerState.TRAINING, LedgerState.RUNNING_AGENTS)
# The work of a job's machines for other jobs, where the time of one job's machines is shown.
OTHER_JOBS = "other_jobs"


class Fill(StrEnum):
    """How full a serving engine was."""

    FULL = "full"
    PARTLY_FILLED = "partly_filled"
    DRAINING_TAIL = "draining_tail"


Kind = tuple[str, str]
KINDS: tuple[Kind, ...] = (
    *((LedgerState.SERVING.value, fill.value) for fill in Fill),
    (LedgerState.SERVING.value, ""),  # occupancy was not measured
    (LedgerState.TRAINING.value, ""),
    (LedgerState.RUNNING_AGENTS.value, ""),
    (LedgerState.STARTING.value, ""),
    (LedgerState.SWITCHING.value, ""),
    (LedgerState.SYNCING.value, ""),
    (LedgerState.DRAINING.value, ""),
    *(
        (LedgerState.IDLE.value, cause.value)
        for cause in (
            IdleCause.NO_REQUESTS,
            IdleCause.NO_BATCH,
            IdleCause.NO_GROUPS,
            IdleCause.AWAITING_WEIGHTS,
            IdleCause.AWAITING_GANG,
            IdleCause.AWAITING_ORDERS,
            IdleCause.NO_JOB,
            IdleCause.CORDONED,
        )
    ),
    (OTHER_JOBS, ""),
    (LedgerState.UNKNOWN.value, ""),
    (LedgerState.DOWN.value, ""),
)
_POSITIONS = {kind: position for position, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a machine's time. Serving: the mean requests in flight, and how many the engine decodes at once."""

    state: str
    cause: str
    started_at: datetime
    ended_at: datetime
    mean_in_flight: float | None = None
    num_slots: int | None = None

    @property
    def duration_s(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def occupancy(self) -> float | None:
        if self.mean_in_flight is None or not self.num_slots:
            return None
        return min(self.mean_in_flight / self.num_slots, 1.0)

    @property
    def waiting_per_slot(self) -> float | None:
        if self.mean_in_flight is None or not self.num_slots:
            return None
        return max(self.mean_in_flight / self.num_slots - 1.0, 0.0)


class Lulls:
    """Times in which nothing more of a job waited: disjoint, ordered by their beginning; the last may be open."""

    def __init__(self, lulls: Sequence[tuple[datetime, datetime | None]] = ()) -> None:
        self._lulls = lulls
        self._begins = [began_at for began_at, _ in lulls]

    def seconds_within(self, start: datetime, end: datetime) -> float:
        seconds = 0.0
        for began_at, ended_at in self._lulls[max(bisect_right(self._begins, start) - 1, 0) :]:
            if began_at >= end:
                break
            overlap = min(ended_at or end, end) - max(began_at, start)
            seconds += max(overlap.total_seconds(), 0.0)
        return seconds


def span_seconds(span: Span, lulls: Lulls) -> Iterator[tuple[Kind, float]]:
    """Yield the seconds of a span by kind; it has two kinds if a lull begins or ends in it."""
    if span.state != LedgerState.SERVING or span.occupancy is None:
        yield (span.state, span.cause), span.duration_s
    elif span.occupancy >= FULL_OCCUPANCY:
        yield (span.state, Fill.FULL.value), span.duration_s
    else:
        tail_s = lulls.seconds_within(span.started_at, span.ended_at)
        yield (span.state, Fill.DRAINING_TAIL.value), tail_s
        yield (span.state, Fill.PARTLY_FILLED.value), span.duration_s - tail_s


@dataclass(frozen=True, slots=True)
class KindTotal:
    state: str
    cause: str
    duration_s: float
    share: float
    mean_in_flight: float | None

    @property
    def is_productive(self) -> bool:
        return self.state in PRODUCTIVE_STATES


@dataclass(frozen=True, slots=True)
class Activity:
    """Where time went. `totals` are in the order of `KINDS`.

    `occupancy` and `waiting_per_slot` (requests that wait at an engine for each of its slots) are means over the slots
    and the time served; None if not measured.
    """

    totals: tuple[KindTotal, ...]
    occupancy: float | None
    waiting_per_slot: float | None

    @property
    def productive_share(self) -> float | None:
        if not self.totals:
            return None
        return sum(total.share for total in self.totals if total.is_productive)


def activity(spans: Iterable[tuple[Span, Lulls]]) -> Activity:
    seconds: defaultdict[Kind, float] = defaultdict(float)
    measured_s: defaultdict[Kind, float] = defaultdict(float)
    request_s: defaultdict[Kind, float] = defaultdict(float)
    filled_s = waiting_s = slot_s = 0.0
    for span, lulls in spans:
        for kind, part_s in span_seconds(span, lulls):
            seconds[kind] += part_s
            if span.mean_in_flight is not None:
                measured_s[kind] += part_s
                request_s[kind] += span.mean_in_flight * part_s
        if span.state == LedgerState.SERVING and span.occupancy is not None:
            served_slot_s = (span.num_slots or 0) * span.duration_s
            filled_s += span.occupancy * served_slot_s
            waiting_s += (span.waiting_per_slot or 0.0) * served_slot_s
            slot_s += served_slot_s
    totals = _totals(seconds, {kind: request_s[kind] / of_s for kind, of_s in measured_s.items() if of_s})
    return Activity(totals, filled_s / slot_s if slot_s else None, waiting_s / slot_s if slot_s else None)


def _totals(seconds: Mapping[Kind, float], in_flight: Mapping[Kind, float]) -> tuple[KindTotal, ...]:
    whole_s = sum(seconds.values())
    ordered = sorted(seconds, key=lambda kind: (_POSITIONS.get(kind, len(KINDS)), kind))
    return tuple(
        KindTotal(*kind, seconds[kind], seconds[kind] / whole_s, in_flight.get(kind))
        for kind in ordered
        if seconds[kind] > 0
    )
