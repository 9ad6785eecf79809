"""Reading the ledger: a machine's time between two moments, by state and cause.

Invariant: the totals sum to the window, which begins where the ledger does if that is later. The time after the last
stored interval is the open interval up to the last heartbeat, then, if the machine went silent, down.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.core.types.ledger import LedgerState

# Unheard for longer, a machine is down (docs/architecture.md).
SILENCE = timedelta(seconds=15)
MAX_INTERVALS_SHOWN = 5_000


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    state: str
    cause: str
    started_at: datetime
    ended_at: datetime
    job_id: object = None
    mean_in_flight: float | None = None

    @property
    def duration_s(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class LedgerTotal:
    state: str
    cause: str
    duration_s: float
    share: float
    mean_in_flight: float | None


@dataclass(frozen=True, slots=True)
class MachineLedger:
    name: str
    machine_id: object
    since: datetime
    until: datetime
    totals: list[LedgerTotal]
    intervals: list[LedgerSpan]
    num_intervals: int

    @property
    def window_s(self) -> float:
        return (self.until - self.since).total_seconds()


def machine_ledger(
    *, machine: Machine, since: datetime, until: datetime, readable: Collection[UUID]
) -> MachineLedger:
    """The ledger of one machine; `intervals` holds the newest `MAX_INTERVALS_SHOWN`.

    Machines serve many projects: jobs outside the `readable` ones are left out.
    """
    spans = list(_spans(machine, since, until, readable))
    begin = spans[0].started_at if spans else until
    return MachineLedger(
        name=machine.name,
        machine_id=machine.id,
        since=begin,
        until=until,
        totals=_totals(spans),
        intervals=spans[-MAX_INTERVALS_SHOWN:],
        num_intervals=len(spans),
    )


def _spans(
    machine: Machine, since: datetime, until: datetime, readable: Collection[UUID]
) -> Iterator[LedgerSpan]:
    stored = LedgerInterval.objects.filter(machine=machine, ended_at__gt=since, started_at__lt=until)
    end_at = None
    columns = ("state", "cause", "started_at", "ended_at", "job_id", "project_id", "mean_in_flight")
    for state, cause, started_at, ended_at, job_id, project_id, in_flight in stored.order_by(
        "started_at"
    ).values_list(*columns):
        end_at = min(ended_at, until)
        shown_job = job_id if project_id in readable else None
        yield LedgerSpan(state, cause, max(started_at, since), end_at, shown_job, in_flight)
    heartbeat = MachineHeartbeat.objects.filter(machine=machine).first()
    if heartbeat is not None:
        yield from _open_spans(heartbeat, end_at, since, until)


def _open_spans(
    heartbeat: MachineHeartbeat, end_at: datetime | None, since: datetime, until: datetime
) -> Iterator[LedgerSpan]:
    """What follows the stored intervals."""
    begin = end_at or max(since, heartbeat.open_since_at or heartbeat.received_at)
    is_silent = until - heartbeat.received_at > SILENCE
    alive_until = min(until, heartbeat.received_at) if is_silent else until
    if heartbeat.open_state and alive_until > begin:
        yield LedgerSpan(heartbeat.open_state, heartbeat.open_cause, begin, alive_until)
        begin = alive_until
    if until > begin:
        yield LedgerSpan(LedgerState.DOWN if is_silent else LedgerState.UNKNOWN, "", begin, until)


def _totals(spans: list[LedgerSpan]) -> list[LedgerTotal]:
    window_s = sum(span.duration_s for span in spans)
    by_state: dict[tuple[str, str], list[LedgerSpan]] = {}
    for span in spans:
        by_state.setdefault((span.state, span.cause), []).append(span)
    totals = [_total(state, cause, members, window_s) for (state, cause), members in by_state.items()]
    return sorted(totals, key=lambda total: -total.duration_s)


def _total(state: str, cause: str, spans: list[LedgerSpan], window_s: float) -> LedgerTotal:
    duration_s = sum(span.duration_s for span in spans)
    measured = [span for span in spans if span.mean_in_flight is not None]
    measured_s = sum(span.duration_s for span in measured)
    in_flight = None
    if measured_s:
        in_flight = sum((span.mean_in_flight or 0.0) * span.duration_s for span in measured) / measured_s
    return LedgerTotal(state, cause, duration_s, duration_s / window_s if window_s else 0.0, in_flight)
