"""Writes on jobs: submit, ask for a state, move between states.

Invariant: `Job.state` changes in `job_move` only, by compare-and-set along `JOB_MOVES`, with one event per move.
"""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.lifecycle.jobs import JOB_MOVES, TERMINAL_JOB_STATES, JobState

# A concurrent move changes the state between reading and writing; each round sees one more such move.
MAX_ROUNDS = 8


def job_move(*, job_id: UUID, to: JobState, reason: str, author: str) -> bool:
    """Move a job by compare-and-set. False if it is not where `to` can be reached from (or is gone)."""
    for _ in range(MAX_ROUNDS):
        row = Job.objects.filter(id=job_id).values_list("state", "project_id").first()
        if row is None or not JOB_MOVES.allows(JobState(row[0]), to):
            return False
        source, project_id = row
        with transaction.atomic():
            moved = Job.objects.filter(id=job_id, state=source).update(**_moved_fields(to, reason))
            if not moved:
                continue
            event_record(
                kind="job.state",
                subject_type=SubjectType.JOB,
                subject_id=job_id,
                job_id=job_id,
                project_id=project_id,
                from_state=source,
                to_state=to,
                reason=reason,
                author=author,
            )
            scheduler_notify(reason=f"job {job_id} is {to}")
            return True
    return False


def _moved_fields(to: JobState, reason: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": to.value, "state_reason": reason}
    if to is JobState.RUNNING:
        # Only the first start counts; a job that was requeued keeps it.
        fields["started_at"] = Coalesce("started_at", timezone.now())
    if to in TERMINAL_JOB_STATES:
        fields |= {"ended_at": timezone.now(), "waiting_reason": ""}
    return fields
