"""Finds the version of a job that did best in evaluation.

Only finished evaluations count. The best has the highest pass@1, then the highest mean reward, then the lower version.
"""

from django.db.models import F, OuterRef, QuerySet, Subquery

from seamlessflow.control_plane.trajectories.models import Evaluation
from seamlessflow.core.lifecycle.groups import EvaluationState


def best_versions_subquery() -> Subquery:
    """Return the best version of each job, for a query on jobs; null before an evaluation is finished."""
    return Subquery(best_first(Evaluation.objects.filter(job=OuterRef("pk"))).values("version")[:1])


def best_first(evaluations: QuerySet[Evaluation]) -> QuerySet[Evaluation]:
    finished = evaluations.filter(state=EvaluationState.FINISHED.value, pass_at_1__isnull=False)
    return finished.order_by(F("pass_at_1").desc(), F("reward_mean").desc(), "version")
