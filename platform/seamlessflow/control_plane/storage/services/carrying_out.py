"""Carries out marked removals: files first, then rows in bounded batches, each committed separately.

Invariant: every step can be repeated, so the next run continues a removal that was interrupted anywhere.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.files.removals import files_remove
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.models import StoredUsage
from seamlessflow.control_plane.storage.services.exports import trajectories_bytes, trajectories_keep
from seamlessflow.control_plane.trajectories.services.partitions import node_partitions_drop
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.retention.planner import RemovalKind

SESSIONS_PER_BATCH = 200
ROWS_PER_BATCH = 5_000
# Events record finished removals; these rows are for the page.
FINISHED_KEPT = timedelta(days=90)
_log = logging.getLogger(__name__)

_SESSIONS = "SELECT id, month FROM trajectory_session WHERE job_id = %s AND id > %s ORDER BY id LIMIT %s"
_NODES = "DELETE FROM trajectory_node WHERE month = ANY(%s) AND session_id = ANY(%s)"
_PAYLOADS = """
    UPDATE trajectory_batch SET payload = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM trajectory_batch WHERE job_id = %s AND payload IS NOT NULL LIMIT 100))
"""
_LOGS = """
    DELETE FROM telemetry_logchunk WHERE id = ANY(ARRAY(
        SELECT c.id FROM scheduling_phase p JOIN telemetry_logchunk c ON c.phase_id = p.id
        WHERE p.job_id = %s LIMIT 500))
"""
_OF_JOB = "DELETE FROM {table} WHERE {key} = ANY(ARRAY(SELECT {key} FROM {table} WHERE job_id = %s LIMIT %s))"
# Tables that grow with a job; deleting the job's row cascades to the others.
_GROWN = (
    ("telemetry_metricpoint", "id"),
    ("common_event", "id"),
    ("trajectory_dataset", "id"),
)
_DATASETS = """
    DELETE FROM trajectory_dataset WHERE id = ANY(ARRAY(
        SELECT d.id FROM trajectory_group g JOIN trajectory_dataset d ON d.group_id = g.id
        WHERE g.job_id = %s LIMIT 5000))
"""
_LEDGER = """
    UPDATE telemetry_ledgerinterval SET job_id = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM telemetry_ledgerinterval WHERE job_id = %s LIMIT 5000))
"""


def removals_carry_out(*, now: datetime) -> int:
    """Carry out all marked removals, oldest first. Returns how many were finished."""
    Removal.objects.filter(finished_at__lt=now - FINISHED_KEPT).delete()
    removals = list(Removal.objects.filter(finished_at=None).order_by("requested_at", "id"))
    kept = [removal for removal in removals if _is_kept(removal)]
    if len(kept) == len(removals):
        node_partitions_drop(today=now.date())  # a partition goes faster than its rows
    return sum(_finished(removal) for removal in kept)


def removal_carry_out(removal: Removal) -> None:
    trajectories_keep(removal)
    files_remove(removal)
    match RemovalKind(removal.kind):
        case RemovalKind.JOB:
            _job_rows_remove(removal.subject_id)
        case RemovalKind.TRAJECTORIES:
            _trajectory_rows_remove(removal.subject_id)
            usage = StoredUsage.objects.filter(job_id=removal.subject_id)
            usage.update(trajectories_bytes=trajectories_bytes(removal.subject_id))
        case RemovalKind.LOGS:
            _repeat(_LOGS, removal.subject_id)
        case RemovalKind.UPLOAD:
            Artifact.objects.filter(id=removal.subject_id).delete()
        case RemovalKind.VERSION | RemovalKind.CHECKPOINT:
            pass  # a version's row stays and records when its files were deleted
    Removal.objects.filter(id=removal.id).update(finished_at=database_now())


def _is_kept(removal: Removal) -> bool:
    """Whether everything the policy wants kept has been written to files."""
    try:
        trajectories_keep(removal)
    except OSError:
        _log.exception("%s waits for its Parquet files", removal)
        return False
    return True


def _finished(removal: Removal) -> bool:
    """Whether the removal succeeded; a failed one is retried on the next run and does not block the others."""
    try:
        removal_carry_out(removal)
    except OSError:
        _log.exception("%s is tried again later", removal)
        return False
    return True


def _trajectory_rows_remove(job_id: UUID) -> None:
    last = UUID(int=0)
    while batch := _rows(_SESSIONS, [job_id, last, SESSIONS_PER_BATCH]):
        ids = [session_id for session_id, _ in batch]
        _execute(_NODES, [list({month for _, month in batch}), ids])
        last = ids[-1]
    _repeat(_PAYLOADS, job_id)
    _repeat(_OF_JOB.format(table="trajectory_prompt", key="id"), job_id, ROWS_PER_BATCH)


def _job_rows_remove(job_id: UUID) -> None:
    if not Job.objects.filter(id=job_id).exists():
        return
    _trajectory_rows_remove(job_id)
    _job_grown_remove(job_id)
    Job.objects.filter(id=job_id).delete()


def _job_grown_remove(job_id: UUID) -> None:
    _repeat(_LOGS, job_id)
    for table, key in _GROWN:
        _repeat(_OF_JOB.format(table=table, key=key), job_id, ROWS_PER_BATCH)
    for statement in (_DATASETS, _LEDGER):
        _repeat(statement, job_id)
    for table in ("trajectory_session", "trajectory_group"):
        _repeat(_OF_JOB.format(table=table, key="id"), job_id, ROWS_PER_BATCH)


def _repeat(statement: str, *parameters: object) -> None:
    """Repeat the statement until it changes nothing."""
    while _execute(statement, list(parameters)):
        pass


def _execute(statement: str, parameters: list[object]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)  # type: ignore[arg-type]  # lists of identifiers are parameters too
        return int(cursor.rowcount)


def _rows(statement: str, parameters: list[object]) -> list[tuple[UUID, object]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)  # type: ignore[arg-type]
        return list(cursor.fetchall())
