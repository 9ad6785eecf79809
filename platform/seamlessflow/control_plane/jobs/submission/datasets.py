"""Chooses the trajectories of other jobs that a job trains on, and fixes them when it is submitted.

Takes the data section of a spec. Writes rows of `DatasetGroup`, which gateways read batch by batch, and counts the
chosen ones, and the others by reason. Invariant: every session comes from a job of the same project and had finished
by then; what its source records later changes nothing, so the job can be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error
from seamlessflow.control_plane.common.files.artifacts import recorded_pin
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.tokenizers import tokenizer_digest
from seamlessflow.core.dataset.epochs import DatasetEpochs
from seamlessflow.core.dataset.section import DataSection
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.runtime.artifacts.store import StoreError
from seamlessflow.runtime.sql import statements

# Why a session is not trained, in words for people. The first reason that holds is reported.
REASONS = {
    "open": "still open when the job was submitted",
    "failed": "without an outcome",
    "evaluation": "of held-out tasks",
    "environment": "of another environment",
    "domain": "of another domain",
    "reward": "outside the bounds of the reward",
    "empty": "without a token whose version is known",
    "version": "sampled by other policy versions",
    "rank": "not among the best of their group",
}
SQL = statements(__name__, SessionState)
_NO_BOUND = 2**62


@dataclass(frozen=True, slots=True)
class Source:
    """A job whose trajectories another job trains on."""

    job_id: UUID
    name: str

    @property
    def shown_id(self) -> str:
        return show_id(IdKind.JOB, self.job_id)


def sources_resolve(*, spec: JobSpec, project_id: UUID, digest: str) -> list[Source]:
    """Return the jobs that a spec names. Raises ApplicationError for one that is missing or whose tokens do not fit."""
    sources: list[Source] = []
    for place, reference in enumerate(spec.data.jobs):
        field = f"data.jobs.{place}"
        job = _job_named(reference, project_id, field)
        if any(source.job_id == job.id for source in sources):
            raise field_error(field, f"{reference!r} is named twice")
        _tokens_check(job, spec, digest, field)
        sources.append(Source(job.id, job.name))
    return sources


def dataset_freeze(*, job: Job, data: DataSection, sources: Sequence[Source], seed: int) -> DatasetEpochs:
    """Choose the sessions and store them with the job. Call this in the transaction that made the job.

    Sets `job.dataset` without saving it. Raises ApplicationError when nothing is left to train.
    """
    _sources_hold(sources)
    counts = _store(job, data, sources)
    num_sessions, num_tokens, num_groups = counts.pop("")
    left_out = {reason: counts[reason][0] for reason in REASONS if counts.get(reason, (0,))[0]}
    if not num_sessions:
        raise field_error("data", _nothing_left(sources, left_out))
    plan = DatasetEpochs(
        num_groups=num_groups,
        groups_per_batch=data.groups_per_batch,
        num_epochs=data.num_epochs,
        seed=seed,
        is_shuffled=data.shuffle,
    )
    job.dataset = {
        "jobs": [{"id": source.shown_id, "name": source.name} for source in sources],
        "num_sessions": num_sessions,
        "num_groups": num_groups,
        "num_sampled_tokens": num_tokens,
        "num_batches_per_epoch": plan.batches_per_epoch,
        "num_epochs": plan.num_epochs,
        "left_out": [
            {"reason": reason, "detail": REASONS[reason], "num_sessions": number}
            for reason, number in left_out.items()
        ],
    }
    return plan


def _sources_hold(sources: Sequence[Source]) -> None:
    """Make deletions of their trajectories wait for this transaction. Raises ApplicationError (409) after one."""
    locked = Job.objects.select_for_update(of=("self",), no_key=True).order_by("id")
    rows = locked.filter(id__in=[source.job_id for source in sources])
    gone = [row for row in rows if row.deleted_at is not None or row.trajectories_deleted_at is not None]
    if gone:
        raise conflict(f"the trajectories of {gone[0].name!r} were deleted in the meantime")


def _job_named(reference: str, project_id: UUID, field: str) -> Job:
    jobs = Job.objects.filter(project_id=project_id, deleted_at=None)
    try:
        found = list(jobs.filter(id=parse_id(IdKind.JOB, reference)))
    except ValueError:
        found = list(jobs.filter(name=reference).order_by("-created_at")[:3])
    if not found:
        raise field_error(
            field, f"there is no job {reference!r} in this project; accepted: a job's id or name"
        )
    if len(found) > 1:
        ids = ", ".join(show_id(IdKind.JOB, job.id) for job in found)
        raise field_error(
            field, f"several jobs of this project are called {reference!r}; name one by its id: {ids}"
        )
    return found[0]


def _tokens_check(source: Job, spec: JobSpec, digest: str, field: str) -> None:
    """Check that token ids mean the same to both models, and that the recorded sessions fit the model's length."""
    name = show_id(IdKind.JOB, source.id)
    if source.trajectories_deleted_at is not None:
        raise field_error(
            field, f"the trajectories of {name} were deleted on {source.trajectories_deleted_at:%Y-%m-%d}"
        )
    try:
        recorded_with = source.tokenizer_sha256 or _tokenizer_digest(source)
    except ApplicationError as error:  # submitted before digests were kept, and its model is gone
        raise field_error(
            field, f"it is no longer known what the tokens of {name} mean: {error.detail}"
        ) from error
    if recorded_with != digest:
        raise field_error(
            field,
            f"{name} was recorded with a tokenizer other than that of model.source, so its tokens mean something else",
        )
    longest = source.resolved_spec.model.max_model_len
    if longest > spec.model.max_model_len:
        raise field_error(
            "model.max_model_len",
            f"{spec.model.max_model_len} is less than max_model_len of {name}, whose sessions may be longer; "
            f"accepted: from {longest} on",
        )


def _store(job: Job, data: DataSection, sources: Sequence[Source]) -> dict[str, tuple[int, int, int]]:
    """Return (sessions, sampled tokens, groups) by reason for leaving them out; those chosen are under ""."""
    parameters: dict[str, Any] = {
        "job": job.id,
        "project": job.project_id,
        "jobs": [source.job_id for source in sources],
        "with_evaluations": data.with_evaluations,
        "environments": data.environments,
        "domains": data.domains,
        "min_reward": float("-inf") if data.min_reward is None else data.min_reward,
        "max_reward": float("inf") if data.max_reward is None else data.max_reward,
        "from_version": -_NO_BOUND if data.from_version is None else data.from_version,
        "to_version": _NO_BOUND if data.to_version is None else data.to_version,
        "best_per_group": _NO_BOUND if data.best_per_group is None else data.best_per_group,
    }
    rows = named_rows(SQL["freeze"], parameters)
    return {row.cause: (row.num_sessions, int(row.num_tokens), row.num_groups) for row in rows}


def _nothing_left(sources: Sequence[Source], left_out: dict[str, int]) -> str:
    names = ", ".join(source.shown_id for source in sources)
    if not left_out:
        return f"there is nothing to train on: {names} recorded no session"
    why = ", ".join(f"{number} {REASONS[reason]}" for reason, number in left_out.items())
    return f"there is nothing to train on in {names}; sessions left out: {why}"


def _tokenizer_digest(source: Job) -> str:
    try:
        with recorded_pin(source.model_path, text_only=True) as pinned:
            return tokenizer_digest(pinned.path)
    except StoreError as error:
        raise field_error("model.source", str(error)) from error
