"""The metrics of a job over REST."""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.http.pages import query_integer
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.telemetry.selectors.metrics import Steps, metric_buckets, metric_points
from seamlessflow.control_plane.telemetry.services.points import MAX_STEP

DEFAULT_BUCKETS = 500
MAX_BUCKETS = 5_000
DEFAULT_POINTS = 10_000
MAX_POINTS = 50_000
BUCKETS, EXACT = "buckets", "exact"


class MetricColumnsOutput(serializers.Serializer):
    """Columns of equal length. A row is a bucket, or a stored point with `points=exact`."""

    first_step = serializers.ListField(child=serializers.IntegerField(), help_text="First step of the row.")
    step = serializers.ListField(child=serializers.IntegerField(), help_text="Last step of the row.")
    count = serializers.ListField(child=serializers.IntegerField(), help_text="Number of points in the row.")
    min = serializers.ListField(child=serializers.FloatField())
    max = serializers.ListField(child=serializers.FloatField())
    mean = serializers.ListField(child=serializers.FloatField())
    value = serializers.ListField(child=serializers.FloatField(), help_text="Value at `step`.")


class MetricsOutput(serializers.Serializer):
    first_step = serializers.IntegerField(
        allow_null=True, help_text="First step of this answer; null if there are no points."
    )
    last_step = serializers.IntegerField(allow_null=True)
    bucket_width = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Number of steps per bucket, a power of two. Buckets begin at its multiples. Null with `points=exact`."
        ),
    )
    truncated = serializers.BooleanField(
        help_text="Whether more points follow; `next` then names the next page."
    )
    next = serializers.CharField(
        allow_null=True, help_text="The `cursor` of the next page; null on the last."
    )
    metrics = serializers.DictField(
        child=MetricColumnsOutput(), help_text="Columns by name of the metric, in ascending order of steps."
    )


class JobMetricsApi(ProjectApi):
    @extend_schema(
        operation_id="job_metrics",
        parameters=[
            OpenApiParameter("names", description="Names of metrics, separated by commas. Default: all."),
            OpenApiParameter("from", OpenApiTypes.INT, description="First step. Default: 0."),
            OpenApiParameter("to", OpenApiTypes.INT, description="Last step. Default: the newest."),
            OpenApiParameter(
                "points",
                enum=[BUCKETS, EXACT],
                description=f"How to return the points. Default: `{BUCKETS}`.",
            ),
            OpenApiParameter(
                "buckets",
                OpenApiTypes.INT,
                description=f"Maximum number of rows per metric, 1 to {MAX_BUCKETS}. Default: {DEFAULT_BUCKETS}.",
            ),
            OpenApiParameter(
                "limit",
                OpenApiTypes.INT,
                description=(
                    f"With `points=exact`: maximum number of points per page, 1 to {MAX_POINTS}. Default: "
                    f"{DEFAULT_POINTS}."
                ),
            ),
            OpenApiParameter("cursor", description="With `points=exact`: the `next` of the previous page."),
        ],
        responses=MetricsOutput,
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """Read the metrics of a job.

        By default, the points of each metric are combined into buckets over the whole range of steps, with minimum,
        maximum, mean and last value. With `points=exact` the stored points are returned page by page. The last row of a
        metric is always its newest point.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        query = request.query_params
        names = [name for name in query.get("names", "").split(",") if name]
        steps = _steps(request)
        num_buckets = query_integer(
            request, "buckets", default=DEFAULT_BUCKETS, minimum=1, maximum=MAX_BUCKETS
        )
        limit = query_integer(request, "limit", default=DEFAULT_POINTS, minimum=1, maximum=MAX_POINTS)
        if _is_exact(request):
            series = metric_points(
                job=job, names=names, steps=steps, limit=limit, cursor=query.get("cursor", "")
            )
        else:
            series = metric_buckets(job=job, names=names, steps=steps, num_buckets=num_buckets)
        return Response(
            {
                "first_step": series.first_step,
                "last_step": series.last_step,
                "bucket_width": series.bucket_width,
                "truncated": series.truncated,
                "next": series.next,
                "metrics": series.metrics,
            }
        )


def _is_exact(request: Request) -> bool:
    value = request.query_params.get("points", BUCKETS)
    if value not in (BUCKETS, EXACT):
        raise field_error("points", f"{value!r} is not accepted; accepted: {BUCKETS}, {EXACT}")
    return bool(value == EXACT)


def _steps(request: Request) -> Steps:
    first = query_integer(request, "from", default=0, maximum=MAX_STEP)
    last = query_integer(request, "to", default=MAX_STEP, maximum=MAX_STEP)
    if first > last:
        raise field_error("from", f"{first} is not accepted; accepted: at most `to`, which is {last}")
    return Steps(first, last)
