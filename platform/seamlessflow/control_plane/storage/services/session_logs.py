"""Deletes the logs of a job's oldest sessions, so that a job of many sessions keeps a bounded number of bytes."""

from collections.abc import Mapping
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.selectors import policy_of

MEBIBYTE = 1024**2
CHUNKS_PER_BATCH = 5_000
_OLDEST = """
    DELETE FROM telemetry_logchunk WHERE id = ANY(ARRAY(
        SELECT id FROM (
            SELECT c.id, sum(c.num_bytes) OVER (ORDER BY c.id DESC) AS bytes_so_far
            FROM scheduling_phase p JOIN telemetry_logchunk c ON c.phase_id = p.id
            WHERE p.job_id = %(job)s AND c.session_id IS NOT NULL
        ) newest
        WHERE bytes_so_far > %(limit)s LIMIT %(batch)s))
"""


def session_logs_bound() -> int:
    """Delete what exceeds the projects' limits. Returns how many chunks went."""
    total = 0
    for project_id in Project.objects.values_list("id", flat=True):
        limit_mib = policy_of(project_id).values["session_logs_mib"]
        if limit_mib is None:
            continue
        limit_bytes = limit_mib * MEBIBYTE
        # Measured a moment ago; the logs of phases count there too.
        jobs = Job.objects.filter(
            project_id=project_id, deleted_at=None, stored_usage__logs_bytes__gt=limit_bytes
        )
        for job_id in jobs.values_list("id", flat=True):
            total += _oldest_delete({"job": job_id, "limit": limit_bytes, "batch": CHUNKS_PER_BATCH})
    return total


def _oldest_delete(parameters: Mapping[str, UUID | int]) -> int:
    total = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(_OLDEST, parameters)
            total += int(cursor.rowcount)
            if cursor.rowcount < CHUNKS_PER_BATCH:
                return total
