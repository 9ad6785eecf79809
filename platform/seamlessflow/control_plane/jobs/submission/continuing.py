"""Lets a new job continue an older one of its project from the newest checkpoint, optimizer included.

Takes a spec that names the older job (`train.continue_from`). The new job begins with a version 1 and a checkpoint
before its first batch, whose files are its own; so engines serve the learned weights from the first turn on. The files
are hard links (copies where the file system has none): versions and checkpoints never change once they have their
names, so retention may delete the older job. Only the progress and the manifest are written anew, because they contain
the numbers of batch and version.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.continued_files import (
    VERSION,
    Checkpoint,
    checkpoint_take,
    checkpoints_find,
    version_take,
)
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.core.artifacts.store_paths import job_path
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.types.ids import IdKind, parse_id

FIELD = "train.continue_from"
# A checkpoint holds what these say: a trainer with other values would read it as another model.
_SAME = ("model.dtype", "train.lora", "train.freeze_router")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a job begins: the version of the older one that its newest whole checkpoint holds."""

    version: PolicyVersion
    weights: str  # its place in the artifact store
    checkpoint: Checkpoint


def origin_resolve(*, spec: JobSpec, project_id: UUID, model_path: str) -> Origin | None:
    """Return the job that the spec wants to continue; None if it begins anew. Raises ApplicationError naming the
    field."""
    if spec.train.continue_from is None:
        return None
    try:
        job_id = parse_id(IdKind.JOB, spec.train.continue_from)
    except ValueError as error:
        raise field_error(FIELD, str(error)) from error
    job = Job.objects.filter(id=job_id, project_id=project_id, deleted_at=None).first()
    if job is None:
        raise field_error(FIELD, f"there is no job {spec.train.continue_from} in this project")
    if JobState(job.state) not in {*TERMINAL_JOB_STATES, JobState.PAUSED}:
        raise field_error(FIELD, f"the job is {job.state}; accepted: a job that has ended or is paused")
    if job.model_path != model_path:
        raise field_error(
            "model.source", "is another model than that of the job to continue; name the same one"
        )
    _same_check(job.resolved_spec, spec)
    _experts_check(job.resolved_spec, spec)
    if spec.algorithm.needs_critic and not job.resolved_spec.algorithm.needs_critic:
        raise field_error(
            "algorithm.advantage",
            "'gae' needs the critic of the job to continue, but that job had none; accepted: another advantage, or a "
            "job with 'gae' to continue",
        )
    return _newest(job)


def _same_check(old: JobSpec, new: JobSpec) -> None:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    for field in _SAME:
        section, name = field.split(".")
        if (given := after[section][name]) != (kept := before[section][name]):
            raise field_error(
                field, f"{given!r} differs from {kept!r} of the job to continue; accepted: the same"
            )


def _experts_check(old: JobSpec, new: JobSpec) -> None:
    """Refuse to spread experts that the checkpoint holds whole, or the reverse: their weights have other names then."""
    before, after = old.train.parallel.expert, new.train.parallel.expert
    if (before == 1) != (after == 1):
        raise field_error(
            "train.parallel.expert",
            f"{after} differs from {before} of the job to continue, which has experts "
            f"{'whole' if before == 1 else 'spread'}; accepted: {'1' if before == 1 else '2 or more'}",
        )


def _newest(job: Job) -> Origin:
    kept = {row.version: row for row in PolicyVersion.objects.filter(job=job, deleted_at=None, version__gt=0)}
    store = artifact_store()
    for checkpoint in checkpoints_find(store, job.id):
        version = kept.get(checkpoint.version)
        weights = store.path_of(version.uri) if version is not None else None
        if version is not None and weights is not None and store.exists(weights):
            return Origin(version, weights, checkpoint)
    raise field_error(
        FIELD, "the job has no checkpoint with its weights: it wrote none, or they were deleted"
    )


@contextmanager
def files_unless_refused(job: Job, origin: Origin | None) -> Iterator[None]:
    """Remove the new job's files again if the block raises, because then there is no such job."""
    try:
        yield
    except BaseException:
        if origin is not None:
            with suppress(OSError):  # the first failure is the one to report
                artifact_store().remove(job_path(job.id))
        raise


def origin_take(job: Job, origin: Origin) -> None:
    """Make the origin the first version of the new job. Raises ApplicationError (409) if it is deleted meanwhile."""
    store, old = artifact_store(), origin.version
    try:
        checkpoint = checkpoint_take(store, origin.checkpoint.store_path, job.id)
        weights, digest = version_take(store, origin.weights, job.id)
    except FileNotFoundError as error:
        raise conflict(f"{FIELD}: the checkpoint was deleted in the meantime") from error
    except OSError as error:
        raise ApplicationError(
            f"{FIELD}: the checkpoint cannot be taken over: {error.strerror or error}"
        ) from error
    PolicyVersion.objects.create(
        project_id=job.project_id,
        job=job,
        version=VERSION,
        parent_version=0,
        optimizer_step=old.optimizer_step,
        uri=store.url_of(weights),
        manifest_sha256=digest,
        num_bytes=old.num_bytes,
        checkpoint_uri=store.url_of(checkpoint),
    )
    job.latest_version = VERSION
    job.save(update_fields=["latest_version"])
