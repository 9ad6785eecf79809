"""Thins out by age what grows without end: events, ledger intervals and the metric points of ended jobs.

Metric points become rows of 2^k steps, on the grid on which they are read (docs/metrics.md), so an answer in buckets
of that width or wider is the same before and after. For each hour of a machine the ledger keeps one interval per state,
cause, job and fill of the engine: durations, occupancy and touching intervals stay what they were. Each batch is one
transaction; a crash between two of them changes nothing that is read.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.common.files.removals import RETENTION
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.selectors import policy_of
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.retention.policy import RetentionRules
from seamlessflow.core.telemetry.rolling import intervals_merge, rolled_width
from seamlessflow.runtime.sql import statements

EVENTS_PER_BATCH = 5_000
HOUR = timedelta(hours=1)
MERGED_COLUMNS = (
    "project_id", "job_id", "state", "cause", "started_at", "ended_at", "mean_in_flight", "num_slots", "num_intervals",
)  # fmt: skip
SQL = statements(__name__)


def events_age(*, now: datetime) -> int:
    """Delete events older than their project's limit; the installation's limit applies to events without a project."""
    total = 0
    for project_id in [*Project.objects.values_list("id", flat=True), None]:
        days = policy_of(project_id).values["events_days"]
        if days is not None and (number := _events_delete(project_id, now - timedelta(days=days))):
            total += number
            _removal_record(project_id, "events.deleted", {"num_events": number, "older_than_days": days})
    return total


def metrics_age(*, now: datetime) -> int:
    """Roll up the points of jobs that ended long enough ago. Returns how many jobs had any."""
    jobs = Job.objects.filter(state__in=TERMINAL_JOB_STATES, deleted_at=None, metrics_rolled_up_at=None)
    policies: dict[UUID, RetentionRules] = {}
    number = 0
    for job in jobs.only("id", "project_id", "ended_at", "created_at"):
        policy = policies.setdefault(job.project_id, policy_of(job.project_id))
        age = (now - (job.ended_at or job.created_at)) / timedelta(days=1)
        if policy.is_over("metrics_exact_days", age):
            _points_roll_up(job, now)
            number += 1
    return number


def ledger_age(*, now: datetime) -> int:
    """Roll up the hours of machines that are old enough. Returns how many intervals went."""
    days = policy_of(None).values["ledger_exact_days"]
    if days is None:
        return 0
    before = (now - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
    return sum(
        _hours_roll_up(machine_id, before) for machine_id in Machine.objects.values_list("id", flat=True)
    )


def _events_delete(project_id: UUID | None, before: datetime) -> int:
    parameters = {
        "before": before,
        "project": project_id,
        "ended": [state.value for state in TERMINAL_JOB_STATES],
        "limit": EVENTS_PER_BATCH,
    }
    total = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(SQL["events_delete"], parameters)
            total += int(cursor.rowcount)
            if cursor.rowcount < EVENTS_PER_BATCH:
                return total


def _points_roll_up(job: Job, now: datetime) -> None:
    with connection.cursor() as cursor:
        for one in named_rows(SQL["names"], {"job": job.id}):
            if (width := rolled_width(one.first_step, one.last_step, one.num_rows)) > 1:
                cursor.execute(SQL["roll_up"], {"job": job.id, "name": one.name, "width": width})
    Job.objects.filter(id=job.id).update(metrics_rolled_up_at=now)


def _hours_roll_up(machine_id: UUID, before: datetime) -> int:
    """Roll up hour by hour, from the newest hour that was already rolled up."""
    of_machine = LedgerInterval.objects.filter(machine_id=machine_id)
    rolled = of_machine.filter(num_intervals__isnull=False).order_by("-started_at").first()
    waiting = of_machine.filter(ended_at__lte=before, num_intervals=None).order_by("started_at")
    begin = None if rolled is None else rolled.ended_at
    total = 0
    while (oldest := waiting.filter(*_from(begin)).first()) is not None:
        hour = oldest.started_at.replace(minute=0, second=0, microsecond=0)
        with transaction.atomic():
            total += _hour_roll_up(machine_id, hour, before)
        begin = hour + HOUR
    return total


def _from(begin: datetime | None) -> list[Q]:
    return [] if begin is None else [Q(started_at__gte=begin)]


def _hour_roll_up(machine_id: UUID, hour: datetime, before: datetime) -> int:
    """Roll up the intervals that begin in this hour; the last of them may reach into the next."""
    rows = list(
        LedgerInterval.objects.filter(
            machine_id=machine_id, started_at__gte=hour, started_at__lt=hour + HOUR, ended_at__lte=before
        ).order_by("started_at")
    )
    merged = intervals_merge(rows)
    LedgerInterval.objects.filter(id__in=[row.id for row in rows]).delete()
    LedgerInterval.objects.bulk_create(
        LedgerInterval(
            machine_id=machine_id,
            **{name: getattr(one, name) for name in MERGED_COLUMNS},
        )
        for one in merged
    )
    return len(rows) - len(merged)


def _removal_record(project_id: UUID | None, kind: str, data: dict[str, object]) -> None:
    event_record(
        kind=kind,
        subject_type=SubjectType.PROJECT,
        subject_id=project_id or UUID(int=0),
        project_id=project_id,
        author=RETENTION,
        data=data,
    )
