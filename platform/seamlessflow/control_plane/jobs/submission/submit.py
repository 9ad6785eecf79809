"""Checks a submitted spec with all that it refers to, and queues the job with its version 0.

Takes a spec as it was sent; returns the stored job, or raises one error with every fault. Invariant: files that a job
names are pinned until the job is stored, so nothing deletes them in between.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.common.errors import (
    ApplicationError,
    FieldFault,
    field_error,
)
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.json_values import json_check
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.continuing import (
    files_unless_refused,
    origin_resolve,
    origin_take,
)
from seamlessflow.control_plane.jobs.submission.datasets import Source, dataset_freeze, sources_resolve
from seamlessflow.control_plane.jobs.submission.gguf import gguf_resolve
from seamlessflow.control_plane.jobs.submission.hardware import hardware_load
from seamlessflow.control_plane.jobs.submission.model_checks import (
    context_check,
    experts_check,
    files_check,
    heads_check,
    lora_targets_check,
    numbers_check,
    shape_of,
)
from seamlessflow.control_plane.jobs.submission.model_folder import ModelFolder
from seamlessflow.control_plane.jobs.submission.model_texts import model_text_check
from seamlessflow.control_plane.jobs.submission.references import (
    model_resolve,
    references_hold,
    tasks_resolve,
)
from seamlessflow.control_plane.jobs.submission.spec_faults import SpecFaults
from seamlessflow.control_plane.jobs.submission.tasks_file import stages_check, tasks_check
from seamlessflow.control_plane.jobs.submission.tokenizers import tokenizer_digest
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.core.hardware_defaults import hardware_filled
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.protocol.model_folders import FolderReport
from seamlessflow.core.spec_submission import submitted_spec_parse
from seamlessflow.runtime.extensions import extensions_installed


def job_submit(
    *, project: Project, user: User, submitted: Mapping[str, Any], author: str, key: str | None = None
) -> Job:
    """Check a spec and the files that it names, then queue the job with its version 0.

    Raises ApplicationError, or IntegrityError if the project already has a job of this `key` (`jobs.repeats`).
    """
    with ExitStack() as pins:  # the files that it refers to
        return _submit(project, user, submitted, author, key, pins)


def _submit(
    project: Project, user: User, submitted: Mapping[str, Any], author: str, key: str | None, pins: ExitStack
) -> Job:
    spec = _spec_parse(submitted)
    suited = hardware_filled(submitted, spec, hardware_load(project_id=project.id))
    if suited is not submitted:
        spec = _spec_parse(suited)
    faults = SpecFaults()
    faults.check(_machines_check, spec)
    resolved = faults.check(gguf_resolve, spec, project=project, user=user, author=author)
    model = resolved and faults.check(
        model_resolve, reference=resolved.model.source, project_id=project.id, pins=pins
    )
    tasks = faults.check(_tasks_take, spec, project, pins)
    held_out_path = faults.check(_held_out_tasks, spec, project, pins)
    folder = ModelFolder(model.path) if model else None
    texts = resolved and folder and _model_check(resolved, folder, faults)
    if faults or not (resolved and model and folder and texts and tasks) or held_out_path is None:
        raise faults.error()
    # The job shows and keeps the family.
    spec = resolved.model_copy(update={"model": resolved.model.model_copy(update={"family": texts.family})})
    shape = shape_of(folder)
    tasks_path, num_tasks = tasks
    origin = origin_resolve(spec=spec, project_id=project.id, model_path=model.recorded)
    digest = tokenizer_digest(folder.path)
    sources = sources_resolve(spec=spec, project_id=project.id, digest=digest)
    job = Job(
        project=project,
        created_by=user,
        name=spec.name,
        spec_submitted=submitted,
        spec=spec.model_dump(mode="json"),
        model_path=model.recorded,
        model_notes=list(texts.notes),
        model_shape=None if shape is None else msgspec.to_builtins(shape),
        tasks_path=tasks_path,
        num_tasks=num_tasks,
        evaluation_tasks_path=held_out_path,
        tokenizer_sha256=digest,
        submission_key=key,
    )
    with files_unless_refused(job, origin), transaction.atomic():
        references_hold(references=spec.references, project_id=project.id)
        _queue_check(project)
        job.save(force_insert=True)
        if spec.data.is_offline:
            _dataset_take(job, spec, sources)
        PolicyVersion.objects.create(project=project, job=job, version=0, uri=_as_url(model.recorded))
        if origin is not None:
            origin_take(job, origin)
        event_record(
            kind="job.state",
            subject_type=SubjectType.JOB,
            subject_id=job.id,
            job_id=job.id,
            project_id=project.id,
            to_state=JobState.QUEUED,
            reason="submitted",
            author=author,
        )
        scheduler_notify(reason=f"job {job.id} was submitted")
    return job


def _queue_check(project: Project) -> None:
    """Refuse one job more in the queue than the project may have. Submissions of a project wait for one another."""
    locked = Project.objects.select_for_update(no_key=True).get(id=project.id)
    most = locked.queued_jobs_quota or settings.MAX_QUEUED_JOBS
    if Job.objects.filter(project=project, state=JobState.QUEUED.value).count() >= most:
        raise ApplicationError(
            f"the project {project.slug} has {most} jobs in the queue, which is its ceiling (queued_jobs_quota); "
            "wait until one of them begins, cancel one, or ask an operator to raise the ceiling",
            status=HTTPStatus.TOO_MANY_REQUESTS,
        )


def _model_check(spec: JobSpec, model: ModelFolder, faults: SpecFaults) -> FolderReport | None:
    """Check the spec against the folder of the model, and keep all faults; return the report on its text files."""
    faults.check(files_check, model)
    faults.check(numbers_check, model)
    faults.check(context_check, model, spec.model.max_model_len)
    faults.check(experts_check, model, spec.train)
    faults.check(heads_check, model, spec.train)
    if spec.train.lora is not None and spec.train.lora.target_modules:
        faults.check(lora_targets_check, model, spec.train.lora.target_modules)
    return faults.check(model_text_check, model.path, spec.model.family)


def _tasks_take(spec: JobSpec, project: Project, pins: ExitStack) -> tuple[str, int | None]:
    """Return where the tasks are recorded and how many there are; nothing for an environment without tasks."""
    if spec.environment.tasks is None:
        return "", None
    tasks = tasks_resolve(reference=spec.environment.tasks, project_id=project.id, pins=pins)
    facts = tasks_check(tasks.path)
    stages_check(spec.algorithm.stages, facts)
    return tasks.recorded, facts.num_tasks


def _dataset_take(job: Job, spec: JobSpec, sources: Sequence[Source]) -> None:
    """Fix the sessions that the job trains on. It gets an update for each batch of its epochs, or fewer if its author
    asked for fewer.
    """
    plan = dataset_freeze(job=job, data=spec.data, sources=sources, seed=spec.seed)
    wanted = spec.train.num_updates if "num_updates" in spec.train.model_fields_set else plan.num_batches
    resolved = spec.model_copy(
        update={
            "data": spec.data.model_copy(update={"jobs": [source.shown_id for source in sources]}),
            "train": spec.train.model_copy(update={"num_updates": min(plan.num_batches, wanted)}),
        }
    )
    job.spec = resolved.model_dump(mode="json")
    job.save(update_fields=["spec", "dataset"])


def _machines_check(spec: JobSpec) -> None:
    store = artifact_store()
    if spec.train.num_machines > 1 and not store.is_local:
        raise field_error(
            "train.num_machines",
            f"{spec.train.num_machines} machines write one checkpoint together, for which ARTIFACT_ROOT must be a "
            f"folder that all of them see, but it is {store.url}; accepted: 1",
        )


def _held_out_tasks(spec: JobSpec, project: Project, pins: ExitStack) -> str:
    if spec.evaluation.tasks is None:
        return ""
    field = "evaluation.tasks"
    found = tasks_resolve(reference=spec.evaluation.tasks, project_id=project.id, pins=pins, field=field)
    tasks_check(found.path, field=field)
    return found.recorded


def _as_url(recorded: str) -> str:
    return Path(recorded).as_uri() if recorded.startswith("/") else recorded


def _spec_parse(submitted: Mapping[str, Any]) -> JobSpec:
    json_check(submitted)
    try:
        return submitted_spec_parse(submitted, extensions_installed())
    except InvalidJobSpec as error:
        faults = tuple(FieldFault(problem.field, problem.detail) for problem in error.problems)
        raise ApplicationError(str(error), faults=faults) from error
