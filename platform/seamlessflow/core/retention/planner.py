"""Decides what a policy deletes now and what may not be deleted: pure rules over facts about jobs and uploads.

Takes a policy and facts; returns removals, each with its bytes and its reason. Invariants: the plan contains nothing
that `job_refusal`, `version_refusal` or `upload_refusal` refuses, and nothing of a job that has not ended; an ended job
keeps its last, best and pinned versions; if a whole job is removed, nothing else is planned for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from seamlessflow.core.retention.policy import RetentionRules


class RemovalKind(StrEnum):
    JOB = "job"
    UPLOAD = "upload"
    VERSION = "version"
    CHECKPOINT = "checkpoint"
    TRAJECTORIES = "trajectories"
    LOGS = "logs"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    number: int
    num_bytes: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    number: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as it is stored. `ended_days`: days since its end; None while it, or a machine for it, is at work.

    `trained_by`: a job at work that trains on its recorded sessions; empty if none does. `num_bytes`: its total.
    `trajectories_bytes` and `logs_bytes` are None if nothing is stored (any more).
    """

    id: UUID
    name: str
    ended_days: float | None
    versions: Sequence[VersionFacts] = ()
    best_version: int | None = None
    checkpoints: Sequence[CheckpointFacts] = ()
    trajectories_bytes: int | None = None
    logs_bytes: int | None = None
    num_bytes: int = 0
    trained_by: str = ""


@dataclass(frozen=True, slots=True)
class UploadFacts:
    """An upload as it is stored. `used_by`: a kept job that uses it, or empty. `unused_days`: days since its last use,
    or its upload."""

    id: UUID
    name: str
    num_bytes: int
    unused_days: float
    used_by: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRemoval:
    """Something to delete. `subject` is a job or an upload; `number` is that of a version or a checkpoint's batch."""

    kind: RemovalKind
    subject: UUID
    name: str
    num_bytes: int
    reason: str
    number: int | None = None


def retention_plan(
    policy: RetentionRules, *, jobs: Iterable[JobFacts], uploads: Iterable[UploadFacts]
) -> list[PlannedRemoval]:
    """Return the removals that the policy demands now, in the order of the facts."""
    planned: list[PlannedRemoval] = []
    for job in jobs:
        planned += _job_plan(policy, job)
    planned += [removal for upload in uploads for removal in _upload_plan(policy, upload)]
    return planned


def job_refusal(job: JobFacts, kind: RemovalKind) -> str:
    """Return why this data of the job cannot be deleted; empty if it can."""
    if job.ended_days is None:
        return "the job has not ended, or a machine still works for it; only the data of an ended job can be deleted"
    if kind in (RemovalKind.JOB, RemovalKind.TRAJECTORIES) and job.trained_by:
        return f"the job {job.trained_by!r} trains on its trajectories"
    pinned = [version.number for version in job.versions if version.is_pinned]
    if kind is RemovalKind.JOB and pinned:
        return f"version {pinned[0]} is pinned; unpin it first"
    return ""


def version_refusal(job: JobFacts, number: int) -> str:
    """Return why the weights of a version cannot be deleted; empty if they can."""
    if refused := job_refusal(job, RemovalKind.VERSION):
        return refused
    version = next((version for version in job.versions if version.number == number), None)
    if version is None:
        return f"version {number} has no weights of its own in the artifact store"
    if version.is_pinned:
        return f"version {number} is pinned; unpin it first"
    return f"version {number} did best in evaluation" if number == job.best_version else ""


def upload_refusal(upload: UploadFacts) -> str:
    return f"the job {upload.used_by!r} uses it; delete the job first" if upload.used_by else ""


def _job_plan(policy: RetentionRules, job: JobFacts) -> Iterator[PlannedRemoval]:
    age = job.ended_days
    if age is None:
        return
    if policy.is_over("jobs_days", age) and not job_refusal(job, RemovalKind.JOB):
        reason = f"the job ended {_days(age)} ago (jobs_days)"
        yield PlannedRemoval(RemovalKind.JOB, job.id, job.name, job.num_bytes, reason)
        return
    yield from _checkpoint_plan(policy, job, age)
    yield from _version_plan(policy, job, age)
    kinds = (
        (RemovalKind.TRAJECTORIES, job.trajectories_bytes, "trajectories_days"),
        (RemovalKind.LOGS, job.logs_bytes, "logs_days"),
    )
    for kind, num_bytes, setting in kinds:
        if num_bytes is not None and policy.is_over(setting, age) and not job_refusal(job, kind):
            reason = f"the job ended {_days(age)} ago ({setting})"
            yield PlannedRemoval(kind, job.id, job.name, num_bytes, reason)


def _checkpoint_plan(policy: RetentionRules, job: JobFacts, age: float) -> Iterator[PlannedRemoval]:
    newest_first = sorted(job.checkpoints, key=lambda checkpoint: -checkpoint.number)
    num_kept = policy.values["ended_checkpoints_keep"] or 0
    setting = "ended_checkpoints_keep"
    if policy.is_over("ended_checkpoints_days", age):
        num_kept, setting = 0, "ended_checkpoints_days"
    for checkpoint in newest_first[num_kept:]:
        reason = f"the job ended {_days(age)} ago ({setting})"
        yield PlannedRemoval(
            RemovalKind.CHECKPOINT, job.id, job.name, checkpoint.num_bytes, reason, checkpoint.number
        )


def _version_plan(policy: RetentionRules, job: JobFacts, age: float) -> Iterator[PlannedRemoval]:
    if not policy.is_over("ended_versions_days", age):
        return
    last = max((version.number for version in job.versions), default=None)
    for version in job.versions:
        if version.number != last and not version_refusal(job, version.number):
            reason = f"the job ended {_days(age)} ago; it keeps its last, best and pinned versions"
            yield PlannedRemoval(
                RemovalKind.VERSION, job.id, job.name, version.num_bytes, reason, version.number
            )


def _upload_plan(policy: RetentionRules, upload: UploadFacts) -> Iterator[PlannedRemoval]:
    if policy.is_over("uploads_unused_days", upload.unused_days) and not upload_refusal(upload):
        reason = f"no job has used it for {_days(upload.unused_days)} (uploads_unused_days)"
        yield PlannedRemoval(RemovalKind.UPLOAD, upload.id, upload.name, upload.num_bytes, reason)


def _days(age: float) -> str:
    return "1 day" if int(age) == 1 else f"{int(age)} days"
