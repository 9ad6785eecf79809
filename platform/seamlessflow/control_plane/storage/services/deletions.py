"""Deleting by hand and by policy: previews deletions and marks what to delete.

Takes deletion requests of a user or a policy; returns for each its bytes and, if it must stay, the reason.
Invariant: each item is judged again under its row lock before it is marked; marking hides it and writes a `Removal` and
an event in one transaction. A marked item is never shown again, even if deleting its files takes a while.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import conflict
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.removals import removal_mark
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.storage.models import StoredCheckpoint
from seamlessflow.control_plane.storage.selectors import artifact_references, job_facts, upload_facts
from seamlessflow.control_plane.trajectories.selectors.summary import job_summary
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.artifacts.store_paths import checkpoint_path, job_path, upload_path
from seamlessflow.core.retention.planner import (
    JobFacts,
    PlannedRemoval,
    RemovalKind,
    job_refusal,
    upload_refusal,
    version_refusal,
)


@dataclass(frozen=True, slots=True)
class DeletionRequest:
    """A request to delete something. `subject`: a job or an upload; `number`: the number of a version or checkpoint."""

    kind: RemovalKind
    subject: UUID
    number: int | None = None


@dataclass(frozen=True, slots=True)
class JudgedDeletion:
    """A request with its bytes. `refusal` says why it must stay; it is empty if it can be deleted."""

    removal: PlannedRemoval
    refusal: str


def deletions_judge(
    *, project_id: UUID, requests: Sequence[DeletionRequest], reason: str, now: datetime
) -> list[JudgedDeletion]:
    """Return for each request the bytes that it frees, or why it is refused: the dry run. Missing items are refused."""
    wanted_jobs = Job.objects.filter(
        project_id=project_id,
        id__in={request.subject for request in requests if request.kind != RemovalKind.UPLOAD},
    )
    jobs = {facts.id: facts for facts in job_facts(wanted_jobs, now=now)}
    wanted_uploads = {request.subject for request in requests if request.kind is RemovalKind.UPLOAD}
    uploads = {facts.id: facts for facts in upload_facts(project_id=project_id, now=now, only=wanted_uploads)}
    judged = []
    for request in requests:
        if request.kind is RemovalKind.UPLOAD:
            upload = uploads.get(request.subject)
            name, size = ("", 0) if upload is None else (upload.name, upload.num_bytes)
            refusal = "there is no such upload" if upload is None else upload_refusal(upload)
        else:
            name, size, refusal = _judge(jobs.get(request.subject), request)
        removal = PlannedRemoval(request.kind, request.subject, name, size, reason, request.number)
        judged.append(JudgedDeletion(removal, refusal))
    return judged


def job_parts_judge(job: Job, *, now: datetime) -> list[JudgedDeletion]:
    """Return all that can be deleted of a job separately: the job, its rows, each checkpoint, each version."""
    (facts,) = job_facts([job], now=now)
    requests = [
        DeletionRequest(RemovalKind.JOB, job.id),
        *([] if facts.trajectories_bytes is None else [DeletionRequest(RemovalKind.TRAJECTORIES, job.id)]),
        *([] if facts.logs_bytes is None else [DeletionRequest(RemovalKind.LOGS, job.id)]),
        *(DeletionRequest(RemovalKind.CHECKPOINT, job.id, one.number) for one in facts.checkpoints),
        *(DeletionRequest(RemovalKind.VERSION, job.id, one.number) for one in facts.versions),
    ]
    judged = []
    for request in requests:
        name, size, refusal = _judge(facts, request)
        judged.append(
            JudgedDeletion(PlannedRemoval(request.kind, job.id, name, size, "", request.number), refusal)
        )
    return judged


def removals_mark(
    *, project_id: UUID, planned: Sequence[PlannedRemoval], author: str, is_strict: bool
) -> list[Removal]:
    """Hide and mark each, in a transaction of its own.

    An item that must stay raises ApplicationError (409) if `is_strict` and is skipped otherwise.
    """
    marked = []
    for removal in planned:
        with transaction.atomic():
            row = _mark(project_id, removal, author, database_now(), is_strict=is_strict)
        if row is not None:
            marked.append(row)
    return marked


def _judge(job: JobFacts | None, request: DeletionRequest) -> tuple[str, int, str]:
    """Return the name, the bytes and the refusal."""
    if job is None:
        return "", 0, "there is no such job"
    match request.kind:
        case RemovalKind.VERSION:
            size = next((one.num_bytes for one in job.versions if one.number == request.number), 0)
            return job.name, size, version_refusal(job, request.number or 0)
        case RemovalKind.CHECKPOINT:
            found = next((one for one in job.checkpoints if one.number == request.number), None)
            if found is None:
                return job.name, 0, f"there is no checkpoint of batch {request.number}"
            return job.name, found.num_bytes, job_refusal(job, request.kind)
        case RemovalKind.TRAJECTORIES:
            size, is_gone = job.trajectories_bytes or 0, job.trajectories_bytes is None
        case RemovalKind.LOGS:
            size, is_gone = job.logs_bytes or 0, job.logs_bytes is None
        case _:
            size, is_gone = job.num_bytes, False
    return job.name, size, "they are already deleted" if is_gone else job_refusal(job, request.kind)


def _mark(
    project_id: UUID, removal: PlannedRemoval, author: str, now: datetime, *, is_strict: bool
) -> Removal | None:
    # A submission that needs the same row waits for this lock, or is seen below.
    if removal.kind is RemovalKind.UPLOAD:
        Artifact.objects.select_for_update().filter(id=removal.subject).first()
    else:
        Job.objects.select_for_update(of=("self",)).filter(id=removal.subject).first()
    request = DeletionRequest(removal.kind, removal.subject, removal.number)
    (judged,) = deletions_judge(project_id=project_id, requests=[request], reason=removal.reason, now=now)
    if judged.refusal:
        if is_strict:
            raise conflict(f"{removal.kind} of {judged.removal.name or removal.subject}: {judged.refusal}")
        return None
    store_paths = _hide(removal, now)
    return removal_mark(
        project_id=project_id,
        planned=replace(judged.removal, reason=removal.reason),
        store_paths=store_paths,
        author=author,
    )


def _hide(removal: PlannedRemoval, now: datetime) -> list[str]:
    """Hide it from users once this transaction commits. Returns the store paths to delete."""
    job, job_id = Job.objects.filter(id=removal.subject), removal.subject
    match removal.kind:
        case RemovalKind.JOB:
            Artifact.objects.filter(id__in=artifact_references(job_id)).update(last_used_at=now)
            job.update(deleted_at=now, submission_key=None)
            return [job_path(job_id)]
        case RemovalKind.TRAJECTORIES:
            job.update(trajectories_deleted_at=now, kept_summary=job_summary(job.get(), now=now))
            return []
        case RemovalKind.LOGS:
            job.update(logs_deleted_at=now)
            return []
        case RemovalKind.VERSION:
            version = PolicyVersion.objects.get(job_id=job_id, version=removal.number or 0)
            PolicyVersion.objects.filter(id=version.id).update(deleted_at=now)
            store_path = artifact_store().path_of(version.uri)
            return [] if store_path is None else [store_path]
        case RemovalKind.CHECKPOINT:
            return [_checkpoint_hide(job_id, removal.number or 0)]
        case RemovalKind.UPLOAD:
            Artifact.objects.filter(id=removal.subject).update(deleted_at=now)
            return [upload_path(removal.subject)]


def _checkpoint_hide(job_id: UUID, batch_number: int) -> str:
    store_path = checkpoint_path(job_id, batch_number)
    StoredCheckpoint.objects.filter(job_id=job_id, batch_number=batch_number).delete()
    PolicyVersion.objects.filter(job_id=job_id, checkpoint_uri__endswith=f"/{store_path}").update(
        checkpoint_uri=""
    )
    return store_path
