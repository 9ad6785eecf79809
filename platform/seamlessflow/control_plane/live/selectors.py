"""Reads what live frames show: the snapshot of a topic, and the rows that the feeder compares from tick to tick.

A snapshot has the newest rows of each kind. `truncated` names the kinds that have older rows, which REST lists.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import Model, QuerySet

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.best_versions import best_versions_subquery
from seamlessflow.control_plane.live.rewards import MAX_UPDATES, rewards_after
from seamlessflow.control_plane.live.rows import (
    edit_row,
    event_row,
    group_row,
    interval_row,
    job_row,
    machine_row,
    metric_row,
    phase_row,
)
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval, MetricPoint
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.protocol.live_rows import GroupRow, JobData, JobsData, MachineRow, MachinesData

MAX_JOBS = 200
MAX_EVENTS = 60
MAX_PHASES = 60
MAX_METRICS = 1000
MAX_GROUPS = 60
# Groups have rows of their own; their moves, dozens a second, would push every other event out of sight.
GROUP_EVENTS = "group."
LANE_WINDOW = timedelta(seconds=130)
MACHINE_EDITED = "machine.edited"
EDIT_WINDOW = timedelta(hours=1)
RATE_WINDOW_S = 10
_Found = TypeVar("_Found", bound=Model)

_GROUPS = """
    SELECT newest.* FROM unnest(%s::uuid[]) AS asked (job_id) CROSS JOIN LATERAL (
        SELECT id, job_id, index, state, reason, size, num_rewarded, reward_mean, reward_std, min_version, max_version,
               batch_number, created_at
        FROM trajectory_group g WHERE g.job_id = asked.job_id AND g.evaluation_version IS NULL
        ORDER BY index DESC LIMIT %s
    ) newest
"""
_RATES = """
    SELECT job_id, sum(num_tokens) FROM trajectory_node
    WHERE job_id = ANY(%s) AND kind = 2 AND created_at > now() - make_interval(secs => %s) GROUP BY job_id
"""


def jobs_snapshot(project_id: UUID) -> JobsData:
    jobs = job_objects().filter(project_id=project_id, deleted_at=None).order_by("-created_at", "-id")
    newest, has_more = _newest(jobs, MAX_JOBS)
    return {"jobs": [job_row(job) for job in newest], "truncated": _names(jobs=has_more)}


def job_objects() -> QuerySet[Job]:
    """Return a query for jobs with everything that `job_row` reads."""
    return Job.objects.select_related("project", "created_by").annotate(best_version=best_versions_subquery())


def job_snapshot(job_id: UUID) -> JobData:
    leases = Phase.objects.filter(job_id=job_id).select_related("machine").order_by("-leased_at", "-id")
    # Short phases come by the dozen; those that are live are shown however old they are.
    ended, has_more_phases = _newest(leases.exclude(state__in=LIVE_PHASE_STATES), MAX_PHASES)
    phases = [*leases.filter(state__in=LIVE_PHASE_STATES), *ended]
    moves = Event.objects.filter(job_id=job_id).exclude(kind__startswith=GROUP_EVENTS)
    events, has_more_events = _newest(moves.order_by("-id"), MAX_EVENTS)
    points, has_more_points = _newest(
        MetricPoint.objects.filter(job_id=job_id).order_by("-step", "name"), MAX_METRICS
    )
    groups = group_rows([job_id]).get(job_id, [])
    job = job_objects().get(id=job_id)
    return {
        "jobs": [job_row(job)],
        "phases": [phase_row(phase) for phase in phases],
        "events": [event_row(event) for event in events],
        "metrics": [metric_row(point) for point in points],
        "rewards": rewards_after([job_id], 0).get(job_id, []),
        "groups": groups,
        "tokens_per_s": token_rates([job_id]).get(job_id, 0.0),
        "truncated": _names(
            phases=has_more_phases,
            events=has_more_events,
            metrics=has_more_points,
            rewards=job.published_batch > MAX_UPDATES,
            groups=min((row["index"] for row in groups), default=0) > 0,
        ),
    }


def machines_snapshot(pool: str) -> MachinesData:
    since = database_now() - LANE_WINDOW
    machines = Machine.objects.filter(pool=pool)
    intervals = LedgerInterval.objects.filter(ended_at__gt=since, machine__pool=pool)
    edited = Event.objects.filter(
        kind=MACHINE_EDITED, at__gt=database_now() - EDIT_WINDOW, subject_id__in=machines.values("id")
    ).order_by("-id")
    edits, has_more = _newest(edited, MAX_EVENTS)
    return {
        "machines": [row for row in machine_rows().values() if row["pool"] == pool],
        "intervals": [interval_row(row) for row in intervals.select_related("machine").order_by("id")],
        "edits": [edit_row(event) for event in edits],
        "truncated": _names(edits=has_more),
    }


def _newest(rows: QuerySet[_Found], most: int) -> tuple[list[_Found], bool]:
    """Return the first `most` rows, and whether there are more."""
    found = list(rows[: most + 1])
    return found[:most], len(found) > most


def _names(**kinds: bool) -> list[str]:
    return [name for name, is_so in kinds.items() if is_so]


def live_phases() -> list[Phase]:
    return list(Phase.objects.filter(state__in=LIVE_PHASE_STATES).select_related("machine").order_by("id"))


def machine_rows(phases: Iterable[Phase] | None = None) -> dict[str, MachineRow]:
    """Return rows by name, with health by the server's clock."""
    by_machine: dict[UUID, list[Phase]] = defaultdict(list)
    for phase in live_phases() if phases is None else phases:
        by_machine[phase.machine_id].append(phase)
    now = database_now()
    rows = {}
    for machine in Machine.objects.select_related("heartbeat", "judgement").order_by("name"):
        rows[machine.name] = machine_row(machine, by_machine[machine.id], now=now)
    return rows


def token_rates(job_ids: list[UUID]) -> dict[UUID, float]:
    """Return the sampled tokens per second over the last ten seconds."""
    with connection.cursor() as cursor:
        cursor.execute(_RATES, [job_ids, RATE_WINDOW_S])
        return {job_id: round(float(tokens) / RATE_WINDOW_S, 1) for job_id, tokens in cursor.fetchall()}


def group_rows(job_ids: list[UUID]) -> dict[UUID, list[GroupRow]]:
    """Return the newest groups of each job."""
    rows: dict[UUID, list[GroupRow]] = {}
    for group in RolloutGroup.objects.raw(_GROUPS, [job_ids, MAX_GROUPS]):
        rows.setdefault(group.job_id, []).append(group_row(group))
    return rows
