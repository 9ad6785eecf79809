"""Reads the ledger: the time of machines between two moments by state and cause, and that of a job's machines together.

Several machines are read by two statements, however many there are.

Invariant: the totals sum to the window, which begins where the ledger does if that is later. The time after the last
stored interval is the open interval up to the last heartbeat, then, if the machine went silent, down.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery, Sum

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.control_plane.trajectories.models import Lull
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.telemetry.activity import (
    OTHER_JOBS,
    PRODUCTIVE_STATES,
    Activity,
    Lulls,
    Span,
    activity,
)
from seamlessflow.core.types.ledger import LedgerState
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES

MAX_INTERVALS_SHOWN = 5_000
MAX_INTERVALS_OF_PAGE = 50_000  # of all machines of a page
MAX_WINDOW = timedelta(days=7)
MAX_PAGE_WINDOW = timedelta(hours=1)  # a page may have hundreds of machines

Lease = tuple[datetime, datetime | None]


@dataclass(frozen=True, slots=True)
class LedgerSpan(Span):
    job_id: UUID | None = None
    project_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class MachineLedger:
    """A machine's ledger in a span of time. `intervals` are the newest of `num_intervals`.

    `is_computing`: whether it rolled out or trained for the job of the ledger.
    """

    name: str
    machine_id: UUID
    since: datetime
    until: datetime
    activity: Activity
    intervals: list[LedgerSpan]
    num_intervals: int
    is_computing: bool

    @property
    def window_s(self) -> float:
        return (self.until - self.since).total_seconds()

    @property
    def is_truncated(self) -> bool:
        return len(self.intervals) < self.num_intervals


@dataclass(frozen=True, slots=True)
class JobLedger:
    """The ledgers of a job's machines, in which work for other jobs is a kind of its own.

    `activity` covers the machines that rolled out or trained for the job, because one that only runs agents is always
    busy.
    `num_read_again_tokens`: the cost of handing machines over to this job, from any other job.
    """

    machines: list[MachineLedger]
    activity: Activity
    num_read_again_tokens: int


def machine_ledger(
    *, machine: Machine, since: datetime, until: datetime, readable: Collection[UUID]
) -> MachineLedger:
    """Return a machine's ledger. Machines serve many projects: ids of jobs outside the `readable` ones are hidden."""
    (ledger,) = machine_ledgers(machines=[machine], since=since, until=until, readable=readable)
    return ledger


def machine_ledgers(
    *, machines: Sequence[Machine], since: datetime, until: datetime, readable: Collection[UUID]
) -> list[MachineLedger]:
    """Return the ledgers of several machines, in their order. Many machines have fewer intervals each."""
    spans = _spans(machines, since, until)
    lulls = _lulls(chain.from_iterable(spans.values()), since, until)
    num_shown = min(MAX_INTERVALS_SHOWN, MAX_INTERVALS_OF_PAGE // max(1, len(machines)))
    return [
        _machine_ledger(machine, spans[machine.id], until, readable, lulls, num_shown=num_shown)
        for machine in machines
    ]


def job_ledger(*, job: Job, now: datetime, readable: Collection[UUID]) -> JobLedger:
    """Return the ledgers of the machines that worked for a job, over its last MAX_WINDOW."""
    until = job.ended_at or now
    since = max(job.started_at or job.created_at, until - MAX_WINDOW)
    leases = _leases(job, since)
    machines = Machine.objects.filter(phases__job=job).distinct().order_by("name")
    by_machine = _spans(machines, since, until)
    spans = {
        machine: [_of_job(span, job, leases.get(machine.id, [])) for span in by_machine[machine.id]]
        for machine in machines
    }
    lulls = _lulls((span for of_machine in spans.values() for span in of_machine), since, until)
    rolled_out_or_trained = Phase.objects.filter(job=job, role__in=EXCLUSIVE_ROLES)
    computing = set(rolled_out_or_trained.values_list("machine_id", flat=True))
    ledgers = [
        _machine_ledger(machine, of_machine, until, readable, lulls, is_computing=machine.id in computing)
        for machine, of_machine in spans.items()
    ]
    together = (
        span for machine, of_machine in spans.items() if machine.id in computing for span in of_machine
    )
    return JobLedger(ledgers, _activity(together, lulls), _read_again_for(job, since))


def _leases(job: Job, since: datetime) -> dict[UUID, list[Lease]]:
    """Return when the job had a phase on each machine."""
    phases = Phase.objects.filter(Q(ended_at=None) | Q(ended_at__gt=since), job=job)
    leases: dict[UUID, list[Lease]] = {}
    for machine_id, leased_at, ended_at in phases.values_list("machine_id", "leased_at", "ended_at"):
        leases.setdefault(machine_id, []).append((leased_at, ended_at))
    return leases


def _of_job(span: LedgerSpan, job: Job, leases: Sequence[Lease]) -> LedgerSpan:
    """Return the span as the job sees it: a machine that works for others is neither busy nor idle for the job."""
    return span if _is_of_job(span, job, leases) else replace(span, state=OTHER_JOBS, cause="")


def _is_of_job(span: LedgerSpan, job: Job, leases: Sequence[Lease]) -> bool:
    """Work that names no job is that of several jobs' agents. It is the job's too if it had a phase there then."""
    if span.job_id is not None:
        return span.job_id == job.id
    if span.state not in PRODUCTIVE_STATES:
        return True
    return any(
        leased_at < span.ended_at and (ended_at is None or ended_at > span.started_at)
        for leased_at, ended_at in leases
    )


def _read_again_for(job: Job, since: datetime) -> int:
    """Return how many tokens of turns were read again elsewhere because their machines were handed over to the job."""
    ended = Phase.objects.filter(num_read_again_tokens__gt=0, ended_at__gte=since)
    taken_from_others = ended.filter(next_job=job)
    taken_from_itself = ended.filter(job=job, next_job=None).exclude(next_role="")
    totals = (
        rows.aggregate(total=Sum("num_read_again_tokens"))["total"] or 0
        for rows in (taken_from_others, taken_from_itself)
    )
    return sum(totals)


def _machine_ledger(
    machine: Machine,
    spans: Sequence[LedgerSpan],
    until: datetime,
    readable: Collection[UUID],
    lulls: Mapping[UUID, Lulls],
    *,
    is_computing: bool = True,
    num_shown: int = MAX_INTERVALS_SHOWN,
) -> MachineLedger:
    newest = spans[-num_shown:]
    return MachineLedger(
        name=machine.name,
        machine_id=machine.id,
        since=spans[0].started_at if spans else until,
        until=until,
        activity=_activity(spans, lulls),
        intervals=[span if span.project_id in readable else replace(span, job_id=None) for span in newest],
        num_intervals=len(spans),
        is_computing=is_computing,
    )


def _activity(spans: Iterable[LedgerSpan], lulls: Mapping[UUID, Lulls]) -> Activity:
    none = Lulls()
    return activity((span, lulls.get(span.job_id, none) if span.job_id else none) for span in spans)


def _lulls(spans: Iterable[LedgerSpan], since: datetime, until: datetime) -> dict[UUID, Lulls]:
    """Return the lulls of the jobs whose requests were served."""
    job_ids = {span.job_id for span in spans if span.state == LedgerState.SERVING and span.job_id}
    if not job_ids:
        return {}
    rows = Lull.objects.filter(
        Q(ended_at=None) | Q(ended_at__gt=since), job_id__in=job_ids, began_at__lt=until
    )
    by_job: dict[UUID, list[tuple[datetime, datetime | None]]] = {}
    for job_id, began_at, ended_at in rows.order_by("began_at").values_list("job_id", "began_at", "ended_at"):
        by_job.setdefault(job_id, []).append((began_at, ended_at))
    return {job_id: Lulls(lulls) for job_id, lulls in by_job.items()}


def _spans(machines: Iterable[Machine], since: datetime, until: datetime) -> dict[UUID, list[LedgerSpan]]:
    """Return the spans of each machine in order, without a gap from the first one on."""
    spans: dict[UUID, list[LedgerSpan]] = {machine.id: [] for machine in machines}
    stored = LedgerInterval.objects.filter(machine__in=spans, ended_at__gt=since, started_at__lt=until)
    columns = (
        "machine_id", "state", "cause", "started_at", "ended_at", "mean_in_flight", "num_slots", "job_id", "project_id"
    )  # fmt: skip
    for machine_id, state, cause, started_at, ended_at, *rest in stored.order_by("started_at").values_list(
        *columns
    ):
        spans[machine_id].append(
            LedgerSpan(state, cause, max(started_at, since), min(ended_at, until), *rest)
        )
    for heartbeat in _heartbeats(spans):
        of_machine = spans[heartbeat.machine_id]
        end_at = of_machine[-1].ended_at if of_machine else None
        of_machine.extend(_open_spans(heartbeat, end_at, since, until))
    return spans


def _heartbeats(machine_ids: Collection[UUID]) -> Iterable[MachineHeartbeat]:
    """Return the last heartbeats, with the job and project that their open intervals are for: those of the phase that
    rolls out or trains, if the interval began with it or later."""
    phase = Phase.objects.filter(
        machine=OuterRef("machine"),
        state__in=LIVE_PHASE_STATES,
        role__in=EXCLUSIVE_ROLES,
        leased_at__lte=OuterRef("open_since_at"),
    )
    return MachineHeartbeat.objects.filter(machine__in=machine_ids).annotate(
        open_job_id=Subquery(phase.values("job_id")[:1]),
        open_project_id=Subquery(phase.values("project_id")[:1]),
    )


def _open_spans(
    heartbeat: Any, end_at: datetime | None, since: datetime, until: datetime
) -> Iterator[LedgerSpan]:
    """Yield the spans that follow the stored intervals."""
    begin = end_at or max(since, heartbeat.open_since_at or heartbeat.received_at)
    is_silent = not heartbeat.is_heard(until)
    alive_until = min(until, heartbeat.received_at) if is_silent else until
    if heartbeat.open_state and alive_until > begin:
        yield LedgerSpan(
            heartbeat.open_state,
            heartbeat.open_cause,
            begin,
            alive_until,
            job_id=heartbeat.open_job_id,
            project_id=heartbeat.open_project_id,
        )
        begin = alive_until
    if until > begin:
        yield LedgerSpan(LedgerState.DOWN if is_silent else LedgerState.UNKNOWN, "", begin, until)
