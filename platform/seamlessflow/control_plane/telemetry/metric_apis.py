"""The metrics of a job over REST."""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.api import ProjectApi
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.http.pages import query_integer
from seamlessflow.control_plane.jobs.selectors import job_get_visible
from seamlessflow.control_plane.telemetry.metric_selectors import Steps, metric_buckets, metric_points
from seamlessflow.control_plane.telemetry.services import MAX_STEP

DEFAULT_BUCKETS = 500
MAX_BUCKETS = 5_000
DEFAULT_POINTS = 10_000
MAX_POINTS = 50_000
BUCKETS, EXACT = "buckets", "exact"


class MetricColumnsOutput(serializers.Serializer):
    """Columns of equal length; a row is a bucket, or a stored point with `points=exact`."""

    first_step = serializers.ListField(child=serializers.IntegerField(), help_text="The row's first step.")
    step = serializers.ListField(child=serializers.IntegerField(), help_text="The row's last step.")
    count = serializers.ListField(child=serializers.IntegerField(), help_text="Points in the row.")
    min = serializers.ListField(child=serializers.FloatField())
    max = serializers.ListField(child=serializers.FloatField())
    mean = serializers.ListField(child=serializers.FloatField())
    value = serializers.ListField(child=serializers.FloatField(), help_text="The value at `step`.")


class MetricsOutput(serializers.Serializer):
    first_step = serializers.IntegerField(
        allow_null=True, help_text="Where the points of this answer begin; null if there are none."
    )
    last_step = serializers.IntegerField(allow_null=True)
    bucket_width = serializers.IntegerField(
        allow_null=True,
        help_text="Steps in a bucket, a power of two; buckets begin at its multiples. Null with `points=exact`.",
    )
    truncated = serializers.BooleanField(help_text="Whether more points follow; `next` then goes on.")
    next = serializers.CharField(
        allow_null=True, help_text="The `cursor` of the next page; null on the last."
    )
    metrics = serializers.DictField(child=MetricColumnsOutput(), help_text="By name, steps ascending.")


class JobMetricsApi(ProjectApi):
    @extend_schema(
        operation_id="job_metrics",
        parameters=[
            OpenApiParameter("names", description="Comma-separated; all if left out."),
            OpenApiParameter("from", OpenApiTypes.INT, description="First step; 0 if left out."),
            OpenApiParameter("to", OpenApiTypes.INT, description="Last step; the newest if left out."),
            OpenApiParameter("since_step", OpenApiTypes.INT, description="Older name of `from`."),
            OpenApiParameter(
                "points", enum=[BUCKETS, EXACT], description=f"How to show them; `{BUCKETS}` if left out."
            ),
            OpenApiParameter(
                "buckets",
                OpenApiTypes.INT,
                description=f"Rows of each metric at most: 1 to {MAX_BUCKETS}; {DEFAULT_BUCKETS} if left out.",
            ),
            OpenApiParameter(
                "limit",
                OpenApiTypes.INT,
                description=f"With `points=exact`: points of a page, 1 to {MAX_POINTS}; {DEFAULT_POINTS} if left out.",
            ),
            OpenApiParameter("cursor", description="With `points=exact`: the `next` of the page before."),
        ],
        responses=MetricsOutput,
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """Read the metrics of a job.

        By default the points of each metric are gathered in buckets over the whole range of steps,
        with minimum, maximum, mean and last value. With `points=exact` the stored points are
        returned page by page. The last row of a metric is always its newest point.
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
    older = query_integer(request, "since_step", default=0, maximum=MAX_STEP)
    first = query_integer(request, "from", default=older, maximum=MAX_STEP)
    last = query_integer(request, "to", default=MAX_STEP, maximum=MAX_STEP)
    if first > last:
        raise field_error("from", f"{first} is not accepted; accepted: at most `to`, which is {last}")
    return Steps(first, last)
