"""Publishing policy versions and pruning their files.

Invariant: a job's versions grow by one, each takes in the next batch, and only the phase that has the job's train
fence publishes; everything a publication changes commits at once.
"""

import re
from datetime import datetime, timedelta
from http import HTTPStatus
from uuid import UUID

from django.db import transaction

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.removals import RETENTION, files_remove_marked, removal_mark
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.jobs.services.reward_curves import job_reward_curve_store
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.services.publication_rows import publication_store
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.services.points import metrics_record
from seamlessflow.control_plane.trajectories.selectors.evaluations import versions_measured
from seamlessflow.core.artifacts.store_paths import NUM_KEPT_CHECKPOINTS, checkpoints_path, versions_path
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.worker import Publication, PublicationReply
from seamlessflow.core.retention.planner import PlannedRemoval, RemovalKind
from seamlessflow.core.types.tags import Role

MAX_COUNT = 2**62
LEFTOVERS_SEARCHED = timedelta(days=1)
LEFTOVERS_REST = timedelta(seconds=30)  # a trainer killed with its job may still be exiting
_SHA256 = re.compile("[0-9a-f]{64}")


@transaction.atomic
def version_publish(*, claims: PhaseClaims, publication: Publication) -> PublicationReply:
    """Publish weights as a version, by compare-and-set. Repeating a publication gives the same answer.

    Raises ApplicationError: 409 with the reason when the trainer is fenced off or out of order, 403 for another role.
    """
    rows = Job.objects.select_for_update(of=("self",), no_key=True).filter(id=claims.job_id)
    job = rows.only("state", "project_id", "train_fence", "latest_version", "published_batch").first()
    if claims.role is not Role.TRAIN:
        raise ApplicationError("only a train phase may publish versions", status=HTTPStatus.FORBIDDEN)
    if job is None:
        raise conflict("the job no longer exists")
    known = PolicyVersion.objects.filter(job=job, version=publication.version).first()
    if known is not None and _is_same(known, publication):
        return _reply(job, publication.version)
    _check_order(job, publication)
    _check_fence(job, claims)
    publication_store(project_id=job.project_id, claims=claims, publication=publication)
    job.published_batch = publication.batch_number
    job_reward_curve_store(job_id=job.id)
    metrics_record(
        job_id=job.id, project_id=job.project_id, step=publication.version, values=publication.metrics
    )
    return _reply(job, publication.version)


def _is_same(known: PolicyVersion, publication: Publication) -> bool:
    return (known.batch_number, known.manifest_sha256) == (
        publication.batch_number,
        publication.manifest_sha256,
    )


def _check_fence(job: Job, claims: PhaseClaims) -> None:
    if job.state in TERMINAL_JOB_STATES:
        raise conflict(f"the job is {job.state}")
    phase = Phase.objects.filter(id=claims.phase_id, fence=claims.fence).values_list("state").first()
    if phase is None or phase[0] not in LIVE_PHASE_STATES:
        raise conflict("the train phase is over; its machine may have a newer lease")
    # The scheduler sets the fence with the lease; another value means that a newer trainer has it.
    if job.train_fence != claims.fence:
        raise conflict(f"fence {claims.fence} is stale: the job's train fence is {job.train_fence}")


def _check_order(job: Job, publication: Publication) -> None:
    if publication.version != job.latest_version + 1:
        raise conflict(
            f"version {publication.version} is out of order: the next one is {job.latest_version + 1}"
        )
    if publication.batch_number != job.published_batch + 1:
        raise conflict(
            f"batch {publication.batch_number} is out of order: the next one is {job.published_batch + 1}"
        )
    if publication.parent_version > job.latest_version:
        raise conflict(f"parent version {publication.parent_version} does not exist")
    for field in ("parent_version", "optimizer_step", "num_bytes"):
        if not 0 <= getattr(publication, field) < MAX_COUNT:
            raise field_error(field, f"{getattr(publication, field)} is not accepted; accepted: 0 to 2**62")
    if not _SHA256.fullmatch(publication.manifest_sha256):
        raise field_error("manifest_sha256", f"{publication.manifest_sha256!r} is not 64 digits of 0-9a-f")
    _check_path("uri", publication.uri, versions_path(job.id))
    if publication.checkpoint_uri is not None:
        _check_path("checkpoint_uri", publication.checkpoint_uri, checkpoints_path(job.id))


def _check_path(field: str, uri: str, folder: str) -> None:
    """Refuse files of other jobs: publishing would serve them, and pruning would delete them."""
    store = artifact_store()
    store_path = store.path_of(uri)
    if store_path is None or not store_path.startswith(f"{folder}/"):
        raise field_error(
            field, f"{uri!r} is not in the job's own folder of ARTIFACT_ROOT, {store.url_of(folder)}"
        )


def _reply(job: Job, version: int) -> PublicationReply:
    num_updates = specs_load([job.id])[job.id].spec.train.num_updates
    return PublicationReply(version=version, is_job_complete=job.published_batch >= num_updates)


def versions_prune() -> int:
    """Delete unneeded weights: all but the newest `keep_versions`, pinned ones, version 0 and the version
    that did best in evaluation.
    """
    jobs = Job.objects.filter(versions__deleted_at=None, versions__version__gt=0).distinct()
    return sum(
        versions_prune_job(job_id=job.id, keep=job.resolved_spec.train.keep_versions)
        for job in jobs.order_by().only("id")
    )


def versions_prune_job(*, job_id: UUID, keep: int) -> int:
    kept = PolicyVersion.objects.filter(job_id=job_id, deleted_at=None, version__gt=0)
    kept = kept.select_related("job").order_by("-version")
    in_use, measured = _versions_in_use(job_id), versions_measured(job_id)
    doomed = [
        row
        for row in kept[keep:]
        if not row.is_pinned and row.version not in in_use and not measured.keeps(row.version)
    ]
    for row in doomed:
        files_remove_marked(_version_mark(row))
    return len(doomed)


def _version_mark(row: PolicyVersion) -> Removal:
    """Mark the row first, so that an interrupted removal can be continued."""
    store_path = artifact_store().path_of(row.uri)
    planned = PlannedRemoval(
        kind=RemovalKind.VERSION,
        subject=row.job_id,
        name=row.job.name,
        num_bytes=row.num_bytes,
        reason="train.keep_versions",
        number=row.version,
    )
    with transaction.atomic():
        PolicyVersion.objects.filter(id=row.id).update(deleted_at=database_now())
        return removal_mark(
            project_id=row.project_id,
            planned=planned,
            store_paths=[] if store_path is None else [store_path],
            author=RETENTION,
            with_event=False,
        )


def leftovers_clear(*, now: datetime) -> int:
    """Delete unfinished files that dying trainers left in the folders of jobs that ended lately.

    No process reads them. While a job lives, its next trainer clears them.
    """
    ended = Job.objects.filter(ended_at__range=(now - LEFTOVERS_SEARCHED, now - LEFTOVERS_REST))
    store = artifact_store()
    return sum(
        store.leftovers_remove(store_path)
        for job_id in ended.values_list("id", flat=True)
        for store_path in (versions_path(job_id), checkpoints_path(job_id))
    )


def _versions_in_use(job_id: UUID) -> set[int]:
    """Return versions that engines serve, should serve or may be loading, and those under the checkpoints that are
    kept, of which the newest may still be being written.

    An engine may load a version other than the newest, but none older than the one it serves or the one that was the
    newest when its phase began.
    """
    in_use: set[int] = set()
    engines = Phase.objects.filter(job_id=job_id, role=Role.ROLLOUT, state__in=LIVE_PHASE_STATES)
    for desired, served, leased_at in engines.values_list("desired_version", "served_version", "leased_at"):
        oldest = _newest_at(job_id, leased_at) if served is None else served
        in_use.update(range(min(oldest, desired), desired + 1))
    checkpoints = PolicyVersion.objects.filter(job_id=job_id).exclude(checkpoint_uri="").order_by("-version")
    in_use.update(checkpoints.values_list("version", flat=True)[:NUM_KEPT_CHECKPOINTS])
    return in_use


def _newest_at(job_id: UUID, moment: datetime) -> int:
    published = PolicyVersion.objects.filter(job_id=job_id, published_at__lte=moment)
    return published.order_by("-version").values_list("version", flat=True).first() or 0
