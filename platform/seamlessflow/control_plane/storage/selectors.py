"""Reads policies, stored data and removals, and collects the facts for a retention plan."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BigIntegerField, DateTimeField, Exists, F, Max, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.best_versions import best_versions_subquery
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.storage.models import RetentionPolicy, StoredCheckpoint, StoredUsage
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.retention.planner import CheckpointFacts, JobFacts, UploadFacts, VersionFacts
from seamlessflow.core.retention.policy import RetentionRules, policy_make
from seamlessflow.core.types.ids import IdKind, parse_id

DAY_S = 86_400.0
ROW_KINDS = ("trajectories", "logs", "events", "metrics")
USAGE_KINDS = ("checkpoints", "versions", "trajectories", "uploads", "logs", "events", "metrics")

_TRAINED_BY = """
    SELECT g.job_id, min(trainer.name) FROM jobs_job trainer
    JOIN trajectory_dataset d ON d.job_id = trainer.id JOIN trajectory_group g ON g.id = d.group_id
    WHERE trainer.state <> ALL(%s) AND trainer.dataset IS NOT NULL AND g.job_id = ANY(%s) GROUP BY g.job_id
"""
# Every artifact that a job's spec names, in any section.
_REFERENCES = """
    SELECT j.name, named #>> '{}'
    FROM jobs_job j, jsonb_path_query(
        j.spec, 'strict $.** ? (@.type() == "string" && @ starts with "artifact://")') named
    WHERE j.project_id = coalesce(%s, j.project_id) AND j.id = coalesce(%s, j.id) AND j.deleted_at IS NULL
"""
ARTIFACT_SCHEME = "artifact://"


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes by kind."""

    by_kind: dict[str, int]
    measured_at: datetime | None

    @property
    def num_bytes(self) -> int:
        return sum(self.by_kind.values())


def overrides_of(project_id: UUID | None) -> dict[str, int | None]:
    """Return the project's own settings, or the installation's if there is no project."""
    rows = (
        RetentionPolicy.objects.filter(project=None)
        if project_id is None
        else RetentionPolicy.objects.filter(project_id=project_id)
    )
    found = rows.values_list("settings", flat=True).first()
    return dict(found or {})


def policy_of(project_id: UUID | None) -> RetentionRules:
    layers = [overrides_of(None)] + ([overrides_of(project_id)] if project_id else [])
    return policy_make(*layers)


def removal_list(*, project_ids: Collection[UUID]) -> QuerySet[Removal]:
    """Return removals, newest first."""
    return Removal.objects.filter(project_id__in=project_ids).order_by("-requested_at", "-id")


def stored_jobs(*, project_ids: Collection[UUID]) -> QuerySet[Job]:
    """Return jobs with their bytes, largest first."""
    versions = PolicyVersion.objects.filter(job=OuterRef("pk"), deleted_at=None, version__gt=0)
    checkpoints = StoredCheckpoint.objects.filter(job=OuterRef("pk"))
    return (
        Job.objects.filter(project_id__in=project_ids, deleted_at=None)
        .select_related("project", "stored_usage")
        .annotate(
            versions_bytes=_sum_of(versions),
            checkpoints_bytes=_sum_of(checkpoints),
            rows_bytes=Coalesce(
                F("stored_usage__trajectories_bytes")
                + F("stored_usage__logs_bytes")
                + F("stored_usage__events_bytes")
                + F("stored_usage__metrics_bytes"),
                0,
            ),
        )
        .annotate(total_bytes=F("versions_bytes") + F("checkpoints_bytes") + F("rows_bytes"))
        .order_by("-total_bytes", "-id")
    )


def stored_uploads(*, project_ids: Collection[UUID]) -> QuerySet[Artifact]:
    """Return uploads, largest first."""
    kept = Artifact.objects.filter(project_id__in=project_ids, deleted_at=None)
    return kept.select_related("project").order_by("-num_bytes", "-id")


def uploads_used_by(page: Sequence[Artifact]) -> None:
    """Set `used_by` on each upload to the name of a job that uses it; one query per project on the page."""
    users = {
        artifact_id: name
        for project_id in {upload.project_id for upload in page}
        for name, artifact_id in _references(project_id, None)
    }
    for upload in page:
        upload.used_by = users.get(upload.id, "")  # type: ignore[attr-defined]  # read by StoredUploadOutput


def usages_of(project_ids: Sequence[UUID]) -> dict[UUID, Usage]:
    """Read the figures of the background process in four queries; nothing is measured here."""
    kept = {"job__project_id__in": project_ids, "job__deleted_at": None}
    versions = PolicyVersion.objects.filter(**kept, deleted_at=None, version__gt=0)
    uploads = Artifact.objects.filter(project_id__in=project_ids, deleted_at=None)
    sums = {f"sum_{kind}": Sum(f"{kind}_bytes") for kind in ROW_KINDS}
    rows = StoredUsage.objects.filter(**kept).order_by().values("job__project_id")
    stored: dict[UUID, Any] = {
        row["job__project_id"]: row for row in rows.annotate(**sums, newest=Max("measured_at"))
    }
    files = {
        "versions": _totals(versions, "job__project_id"),
        "checkpoints": _totals(StoredCheckpoint.objects.filter(**kept), "job__project_id"),
        "uploads": _totals(uploads, "project_id"),
    }
    usages = {}
    for project_id in project_ids:
        row: dict[str, Any] = stored.get(project_id, {})
        by_kind = {kind: int(row.get(f"sum_{kind}") or 0) for kind in ROW_KINDS}
        by_kind |= {kind: totals.get(project_id, 0) for kind, totals in files.items()}
        usages[project_id] = Usage({kind: by_kind[kind] for kind in USAGE_KINDS}, row.get("newest"))
    return usages


def job_facts(jobs: Iterable[Job], *, now: datetime) -> list[JobFacts]:
    """Return the facts about each job, in four queries for any number of jobs."""
    rows = list(
        Job.objects.filter(id__in=[job.id for job in jobs], deleted_at=None)
        .select_related("stored_usage")
        .annotate(
            best=best_versions_subquery(),
            has_phase=Exists(Phase.objects.filter(job=OuterRef("pk"), state__in=LIVE_PHASE_STATES)),
        )
        .order_by("created_at", "id")
    )
    ids = [row.id for row in rows]
    versions, checkpoints, trainers = _versions(ids), _checkpoints(ids), _trainers(ids)
    return [_facts(row, versions[row.id], checkpoints[row.id], trainers.get(row.id, ""), now) for row in rows]


def upload_facts(
    *,
    project_id: UUID,
    now: datetime,
    only: Collection[UUID] | None = None,
    unused_since: datetime | None = None,
) -> list[UploadFacts]:
    """Return facts about uploads, in two queries. Every job that is not deleted counts as a user of its uploads.

    `only`: restrict to these; `unused_since`: to those unused since that time; both None: all.
    """
    artifacts = Artifact.objects.filter(project_id=project_id, deleted_at=None).order_by("created_at", "id")
    if only is not None:
        artifacts = artifacts.filter(id__in=only)
    if unused_since is not None:
        artifacts = artifacts.alias(
            used_at=Coalesce("last_used_at", "created_at", output_field=DateTimeField())
        )
        artifacts = artifacts.filter(used_at__lte=unused_since)
    users = {artifact_id: name for name, artifact_id in _references(project_id, None)}
    return [
        UploadFacts(
            id=artifact.id,
            name=artifact.name,
            num_bytes=artifact.num_bytes,
            unused_days=(now - (artifact.last_used_at or artifact.created_at)).total_seconds() / DAY_S,
            used_by=users.get(artifact.id, ""),
        )
        for artifact in artifacts
    ]


def artifact_references(job_id: UUID) -> set[UUID]:
    """Return the uploads that a job's spec names."""
    return {artifact_id for _, artifact_id in _references(None, job_id)}


def _references(project_id: UUID | None, job_id: UUID | None) -> Iterator[tuple[str, UUID]]:
    """Return pairs of job name and upload."""
    with connection.cursor() as cursor:
        cursor.execute(_REFERENCES, [project_id, job_id])
        for name, reference in cursor.fetchall():
            with contextlib.suppress(ValueError):  # another text with the same prefix
                yield name, parse_id(IdKind.ARTIFACT, reference.removeprefix(ARTIFACT_SCHEME))


def _facts(
    job: Any,
    versions: Sequence[VersionFacts],
    checkpoints: Sequence[CheckpointFacts],
    trained_by: str,
    now: datetime,
) -> JobFacts:
    has_ended = job.state in TERMINAL_JOB_STATES and not job.has_phase
    ended_at = job.ended_at or job.created_at
    stored = getattr(job, "stored_usage", None)
    rows_bytes = 0
    if stored is not None:
        rows_bytes = (
            stored.trajectories_bytes + stored.logs_bytes + stored.events_bytes + stored.metrics_bytes
        )
    return JobFacts(
        id=job.id,
        name=job.name,
        ended_days=(now - ended_at).total_seconds() / DAY_S if has_ended else None,
        versions=versions,
        best_version=job.best,
        checkpoints=checkpoints,
        trajectories_bytes=_unless(job.trajectories_deleted_at, stored, "trajectories_bytes"),
        logs_bytes=_unless(job.logs_deleted_at, stored, "logs_bytes"),
        num_bytes=rows_bytes
        + sum(one.num_bytes for one in versions)
        + sum(one.num_bytes for one in checkpoints),
        trained_by=trained_by,
    )


def _unless(deleted_at: datetime | None, stored: StoredUsage | None, name: str) -> int | None:
    """Return None if it is already deleted; 0 if it was never measured."""
    if deleted_at is not None:
        return None
    return 0 if stored is None else int(getattr(stored, name))


def _versions(job_ids: Sequence[UUID]) -> dict[UUID, list[VersionFacts]]:
    found: dict[UUID, list[VersionFacts]] = defaultdict(list)
    rows = PolicyVersion.objects.filter(job_id__in=job_ids, deleted_at=None, version__gt=0)
    for job_id, number, num_bytes, is_pinned in rows.order_by("version").values_list(
        "job_id", "version", "num_bytes", "is_pinned"
    ):
        found[job_id].append(VersionFacts(number, num_bytes, is_pinned))
    return found


def _checkpoints(job_ids: Sequence[UUID]) -> dict[UUID, list[CheckpointFacts]]:
    found: dict[UUID, list[CheckpointFacts]] = defaultdict(list)
    rows = StoredCheckpoint.objects.filter(job_id__in=job_ids).order_by("batch_number")
    for job_id, number, num_bytes in rows.values_list("job_id", "batch_number", "num_bytes"):
        found[job_id].append(CheckpointFacts(number, num_bytes))
    return found


def _trainers(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return, for each source job, the name of a running job that trains on it."""
    with connection.cursor() as cursor:
        cursor.execute(_TRAINED_BY, [[state.value for state in TERMINAL_JOB_STATES], list(job_ids)])
        return dict(cursor.fetchall())


def _sum_of(rows: QuerySet[Any]) -> Any:
    total = rows.order_by().values("job").annotate(total=Sum("num_bytes")).values("total")
    return Coalesce(Subquery(total, output_field=BigIntegerField()), 0)


def _totals(rows: QuerySet[Any], key: str) -> dict[UUID, int]:
    grouped = rows.order_by().values_list(key).annotate(total=Sum("num_bytes"))
    return {project_id: int(total or 0) for project_id, total in grouped}
