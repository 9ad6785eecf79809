"""Writes on jobs: submit, ask for a state, move between states.

Invariant: `Job.state` changes in `job_move` only, by compare-and-set along `JOB_MOVES`, with one event per move.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, DurationField, ExpressionWrapper, F, Value, When
from django.db.models.functions import Coalesce, Now

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import (
    conflict,
    field_error,
    stale,
)
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.lifecycle.jobs import JOB_MOVES, TERMINAL_JOB_STATES, DesiredJobState, JobState

PLATFORM = "platform"  # the author of what no person asked for
# Another move may change the state between our read and our write; each round allows for one more such move.
MAX_ROUNDS = 8


def job_move(*, job_id: UUID, to: JobState, reason: str, author: str) -> bool:
    """Move a job by compare-and-set. Returns False if its state does not allow the move, or if it is gone."""
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
    now = database_now()
    if to is JobState.PAUSED:  # a pause before the start is waiting
        fields["paused_at"] = Case(When(started_at__isnull=False, then=Value(now)))
    else:
        pause = ExpressionWrapper(Value(now) - F("paused_at"), output_field=DurationField())
        fields |= {"paused_for": F("paused_for") + Coalesce(pause, timedelta(0)), "paused_at": None}
    if to is JobState.QUEUED:
        fields["queued_at"] = database_now()
    if to is JobState.STARTING:
        fields["admitted_at"] = database_now()
    if to is JobState.RUNNING:
        # Only the first start counts; a job that was requeued or paused keeps it.
        fields["started_at"] = Coalesce("started_at", database_now())
    if to in TERMINAL_JOB_STATES:
        fields |= {"ended_at": database_now(), "waiting_reason": ""}
    return fields


def job_desire(*, job_id: UUID, desired: DesiredJobState, reason: str, author: str) -> Job:
    """Ask a job to run, pause or end; the scheduler moves it there. Asking twice changes nothing.

    Raises ApplicationError (409) if the job has ended, or if it was cancelled and is asked for anything else.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(of=("self",), no_key=True).get(id=job_id)
        if job.desired == desired:
            return job
        if JobState(job.state) in TERMINAL_JOB_STATES:
            raise conflict(f"the job is {job.state}; only a job that has not ended can be asked to {desired}")
        if job.desired == DesiredJobState.CANCEL:
            raise conflict(f"the job is being cancelled and cannot be asked to {desired}")
        before, job.desired = job.desired, desired.value
        job.pause_reason = reason if author == PLATFORM and desired is DesiredJobState.PAUSE else ""
        job.generation += 1
        job.save(update_fields=["desired", "pause_reason", "generation"])
        if desired is DesiredJobState.RUN:  # use the same clock as for the finalization of groups
            Job.objects.filter(id=job.id).update(resumed_at=Now(), num_failures=0)
        _request_record(job, "job.desired", reason, author, {"from": before, "to": desired})
        scheduler_notify(reason=f"job {job.id} is asked to {desired}")
    return job


def job_prioritize(*, job_id: UUID, priority: int, reason: str, author: str, generation: int) -> Job:
    """Give a job another priority; the scheduler's next cycle serves it by that. The same one again changes nothing.

    Raises ApplicationError: 412 if `generation` is stale, 409 for a job that has ended.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(of=("self",), no_key=True).get(id=job_id)
        if job.generation != generation:
            raise stale("job", job.generation, generation)
        if JobState(job.state) in TERMINAL_JOB_STATES:
            raise conflict(f"the job is {job.state}; only a job that has not ended can get another priority")
        before = job.current_priority
        if before == priority:
            return job
        job.priority = priority
        job.generation += 1
        job.save(update_fields=["priority", "generation"])
        _request_record(job, "job.priority", reason, author, {"from": before, "to": priority})
        scheduler_notify(reason=f"job {job.id} has the priority {priority}")
    return job


def job_stage_switch(*, job_id: UUID, stage: str, reason: str, author: str) -> Job:
    """Ask for a stage of the job's curriculum by name; the gateway's next group begins an epoch of it.

    Raises ApplicationError for an unknown stage, or (409) for a job that has ended.
    """
    with transaction.atomic():
        job = Job.objects.select_for_update(of=("self",), no_key=True).get(id=job_id)
        names = [section.name for section in job.resolved_spec.algorithm.stages]
        if stage not in names:
            known = f"accepted: {', '.join(names)}" if names else "it has no stages"
            raise field_error("stage", f"the job has no stage {stage!r}; {known}")
        if JobState(job.state) in TERMINAL_JOB_STATES:
            raise conflict(f"the job is {job.state}; only a job that has not ended can switch its stage")
        number = names.index(stage)
        job.stage_requested, job.stage_request = number, job.stage_request + 1
        job.generation += 1
        job.save(update_fields=["stage_requested", "stage_request", "generation"])
        _request_record(job, "job.stage", reason, author, {"to": stage})
    return job


def _request_record(job: Job, kind: str, reason: str, author: str, data: dict[str, Any]) -> None:
    """Record a person's request to a job, with the generation that followed."""
    event_record(
        kind=kind,
        subject_type=SubjectType.JOB,
        subject_id=job.id,
        job_id=job.id,
        project_id=job.project_id,
        reason=reason,
        author=author,
        data={**data, "generation": job.generation},
    )
