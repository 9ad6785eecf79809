"""Reads on jobs, narrowed to those that the caller may see."""

import contextlib
from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import Avg, OuterRef, Q, QuerySet, Subquery

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.models import Event, SubjectType
from seamlessflow.control_plane.common.resolved_specs import RESOLVED_SPECS, ResolvedSpec
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.best_versions import best_versions_subquery
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.trajectories.models import RolloutGroup
from seamlessflow.core.lifecycle.jobs import PAUSED_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.types.ids import IdKind, parse_id, show_id

# The possible subjects of a job's events.
EVENT_SUBJECTS = (
    SubjectType.JOB,
    SubjectType.PHASE,
    SubjectType.VERSION,
    SubjectType.GROUP,
    SubjectType.SESSION,
)


def job_list_visible(
    *,
    access: Access,
    states: Collection[JobState] | None = None,
    needs_attention: bool | None = None,
    search: str = "",
) -> QuerySet[Job]:
    """List jobs, newest first, each with `reward_mean`, the mean reward of the groups in its newest published batch,
    and `best_version`, the one that did best in evaluation.

    `needs_attention`: whether the platform paused them. `search`: a part
    of the name or of the owner's, or a whole id.
    """
    jobs = Job.objects.filter(project_id__in=access.readable, deleted_at=None)
    if states is not None:
        jobs = jobs.filter(state__in=states)
    if needs_attention is not None:
        paused = Q(state__in=PAUSED_JOB_STATES, desired=DesiredJobState.PAUSE)
        by_platform = paused & ~Q(pause_reason="")
        jobs = jobs.filter(by_platform if needs_attention else ~by_platform)
    if search:
        matches = Q(name__icontains=search) | Q(created_by__username__icontains=search)
        with contextlib.suppress(ValueError):  # most searches are not for an id
            matches |= Q(id=parse_id(IdKind.JOB, search))
        jobs = jobs.filter(matches)
    newest_batch = (
        RolloutGroup.objects.filter(job=OuterRef("pk"), batch_number=OuterRef("published_batch"))
        .order_by()
        .values("job")
        .annotate(mean=Avg("reward_mean"))
        .values("mean")
    )
    return (
        jobs.annotate(reward_mean=Subquery(newest_batch), best_version=best_versions_subquery())
        .select_related("project", "created_by")
        .order_by("-created_at", "-id")
    )


def job_get_visible(*, access: Access, job_id: UUID) -> Job:
    """Return the job. Raises ApplicationError (404) if it does not exist or the caller may not see it."""
    job = job_list_visible(access=access).filter(id=job_id).first()
    if job is None:
        raise not_found("job", show_id(IdKind.JOB, job_id))
    return job


def job_of_submission(*, project_id: UUID, key: str) -> Job | None:
    """Return the job that a request with this idempotency key made."""
    return Job.objects.filter(project_id=project_id, submission_key=key).first()


def job_version_list(*, job: Job) -> QuerySet[PolicyVersion]:
    return PolicyVersion.objects.filter(job=job).order_by("-version")


def job_event_list(*, job: Job, subjects: Collection[SubjectType] | None = None) -> QuerySet[Event]:
    """List events, newest first. `subjects`: some of EVENT_SUBJECTS; None means all."""
    events = Event.objects.filter(job_id=job.id).order_by("-id")
    return events if subjects is None else events.filter(subject_type__in=subjects)


def job_phase_list(*, job: Job) -> QuerySet[Phase]:
    return Phase.objects.filter(job=job).select_related("machine").order_by("-leased_at", "-id")


def specs_load(job_ids: Iterable[UUID]) -> dict[UUID, ResolvedSpec]:
    """Return the jobs' resolved specs. One query reads those that this process does not keep yet."""
    return RESOLVED_SPECS.of(
        job_ids, lambda missing: Job.objects.filter(id__in=missing).values_list("id", "spec", "model_shape")
    )
