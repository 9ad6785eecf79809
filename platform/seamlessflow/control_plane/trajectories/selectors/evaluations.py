"""Reads the evaluations of a job, and the versions that retention must keep for them."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.best_versions import best_first
from seamlessflow.control_plane.trajectories.models import Evaluation, RolloutGroup
from seamlessflow.core.lifecycle.groups import EvaluationState, GroupState


def evaluation_list(*, job: Job) -> QuerySet[Evaluation]:
    """List a job's evaluations, newest first, each with `num_tasks_done`."""
    done = (
        RolloutGroup.objects.filter(
            job=job, evaluation_version=OuterRef("version"), state=GroupState.EVALUATED.value
        )
        .order_by()
        .values("evaluation_version")
        .annotate(number=Count("id"))
        .values("number")
    )
    count = Coalesce(Subquery(done, output_field=IntegerField()), 0)
    return Evaluation.objects.filter(job=job).annotate(num_tasks_done=count).order_by("-version")


@dataclass(frozen=True, slots=True)
class MeasuredVersions:
    """The versions that retention must keep: the best one, and those that the running evaluation may measure."""

    best: int | None
    running_from: int | None

    def keeps(self, version: int) -> bool:
        return version == self.best or (self.running_from is not None and version >= self.running_from)


def versions_measured(job_id: UUID) -> MeasuredVersions:
    evaluations = Evaluation.objects.filter(job_id=job_id)
    running = evaluations.filter(state=EvaluationState.RUNNING.value)
    return MeasuredVersions(
        best=best_first(evaluations).values_list("version", flat=True).first(),
        running_from=running.values_list("version", flat=True).first(),
    )
