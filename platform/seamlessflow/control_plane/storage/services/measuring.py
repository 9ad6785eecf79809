"""Measures in the background the bytes that jobs take: checkpoints on disk, rows in the database.

A job that has ended is measured once more and never again. Nodes never change, so for a running job only new ones are
read. Bytes of rows are their stored size in PostgreSQL, without indexes.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.models import StoredCheckpoint, StoredUsage
from seamlessflow.control_plane.storage.services.exports import trajectories_bytes
from seamlessflow.core.artifacts.store_paths import checkpoint_number, checkpoints_path
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES

# Nodes are stamped when their transaction begins; anything this old has been committed.
STABLE_AFTER = timedelta(minutes=5)
_NODES = """
    SELECT coalesce(sum(pg_column_size(n.*)), 0) FROM trajectory_node n
    WHERE n.job_id = %s AND n.created_at >= %s AND n.created_at < %s
"""
_LOGS = """
    SELECT coalesce(sum(c.num_bytes), 0) FROM scheduling_phase p JOIN telemetry_logchunk c ON c.phase_id = p.id
    WHERE p.job_id = %s
"""
_EVENTS = "SELECT coalesce(sum(pg_column_size(e.*)), 0) FROM common_event e WHERE e.job_id = %s"
_METRICS = "SELECT coalesce(sum(pg_column_size(m.*)), 0) FROM telemetry_metricpoint m WHERE m.job_id = %s"
LONG_AGO = "2000-01-01T00:00:00Z"


def usage_measure(*, now: datetime) -> int:
    """Measure the jobs whose data may have changed. Returns how many."""
    is_final = Q(
        state__in=TERMINAL_JOB_STATES, stored_usage__measured_at__gt=F("ended_at") + 2 * STABLE_AFTER
    )
    jobs = Job.objects.filter(deleted_at=None).exclude(is_final)
    for job in jobs.only("id", "trajectories_deleted_at"):
        job_measure(job, now=now)
    return len(jobs)


def job_measure(job: Job, *, now: datetime) -> None:
    _checkpoints_measure(job.id)
    known = StoredUsage.objects.filter(job_id=job.id).first()
    since = LONG_AGO if known is None or known.nodes_until is None else known.nodes_until.isoformat()
    until = now - STABLE_AFTER
    nodes = _figure(_NODES, job.id, since, until.isoformat())
    before = 0 if known is None else known.trajectories_bytes
    StoredUsage.objects.update_or_create(
        job_id=job.id,
        defaults={
            "trajectories_bytes": trajectories_bytes(job.id)
            if job.trajectories_deleted_at
            else before + nodes,
            "logs_bytes": _figure(_LOGS, job.id),
            "events_bytes": _figure(_EVENTS, job.id),
            "metrics_bytes": _figure(_METRICS, job.id),
            "nodes_until": until,
            "measured_at": now,
        },
    )


@transaction.atomic
def _checkpoints_measure(job_id: UUID) -> None:
    """Bring the table in line with the folder: a running trainer deletes its older checkpoints itself."""
    found = _checkpoints_stored(job_id)
    known = {row.batch_number: row for row in StoredCheckpoint.objects.filter(job_id=job_id)}
    StoredCheckpoint.objects.filter(job_id=job_id).exclude(batch_number__in=found).delete()
    StoredCheckpoint.objects.bulk_create(
        [
            StoredCheckpoint(job_id=job_id, batch_number=number, num_bytes=size)
            for number, size in found.items()
            if number not in known
        ]
    )


def _checkpoints_stored(job_id: UUID) -> dict[int, int]:
    """Return bytes by batch; a checkpoint has its name only once it is complete."""
    store, folder = artifact_store(), checkpoints_path(job_id)
    numbered = ((checkpoint_number(name), f"{folder}/{name}") for name in store.names(folder))
    return {
        number: sum(store.files(store_path).values()) for number, store_path in numbered if number is not None
    }


def _figure(statement: str, *parameters: UUID | str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row = cursor.fetchone()
    return int(row[0]) if row else 0
