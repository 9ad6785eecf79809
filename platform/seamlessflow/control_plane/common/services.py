"""Writes events, and notifies listeners on PostgreSQL's channels of changes.

Invariant: an event and the change that it records are in one transaction; notifications leave when it commits.
"""

from typing import Any
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.models import Event, SubjectType

SCHEDULER_CHANNEL = "sf_scheduler"
ENGINES_CHANNEL = "sf_engines"


def event_record(
    *,
    kind: str,
    subject_type: SubjectType,
    subject_id: UUID,
    author: str,
    project_id: UUID | None = None,
    job_id: UUID | None = None,
    from_state: str = "",
    to_state: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
) -> Event:
    return Event.objects.create(
        kind=kind,
        subject_type=subject_type,
        subject_id=subject_id,
        author=author,
        project_id=project_id,
        job_id=job_id,
        from_state=from_state,
        to_state=to_state,
        reason=reason,
        data=data or {},
    )


def scheduler_notify(*, reason: str) -> None:
    """Ask the scheduler for a cycle now."""
    notify(channel=SCHEDULER_CHANNEL, payload=reason)


def engines_notify(*, job_id: UUID) -> None:
    """Ask gateways to reload the engine table of a job."""
    notify(channel=ENGINES_CHANNEL, payload=str(job_id))


def notify(*, channel: str, payload: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [channel, payload])
