"""The metrics of a job over REST."""

from enum import StrEnum
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.http.query import IntegerParameter, Query, TextParameter, WordParameter
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.telemetry.selectors.metrics import Steps, metric_buckets, metric_points
from seamlessflow.control_plane.telemetry.services.points import MAX_STEP
from seamlessflow.core.access.operations import Operation

DEFAULT_BUCKETS = 500
MAX_BUCKETS = 5_000
DEFAULT_POINTS = 10_000
MAX_POINTS = 50_000


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


class PointForm(StrEnum):
    BUCKETS = "buckets"
    EXACT = "exact"


class MetricsQuery(Query):
    """Two names of REST, `from` and `to`, are `first` and `last` here: one of them is a word of Python."""

    names = TextParameter("Names of metrics, separated by commas. Default: all.", default="")
    first = IntegerParameter("First step. Default: 0.", default=0)
    last = IntegerParameter("Last step. Default: the newest.")
    points = WordParameter(
        f"How to return the points. Default: `{PointForm.BUCKETS}`.",
        words=PointForm,
        default=PointForm.BUCKETS,
    )
    buckets = IntegerParameter(
        f"Maximum number of rows per metric, 1 to {MAX_BUCKETS}. Default: {DEFAULT_BUCKETS}.",
        least=1,
        most=MAX_BUCKETS,
        default=DEFAULT_BUCKETS,
    )
    limit = IntegerParameter(
        f"With `points=exact`: maximum number of points per page, 1 to {MAX_POINTS}. Default: {DEFAULT_POINTS}.",
        least=1,
        most=MAX_POINTS,
        default=DEFAULT_POINTS,
    )
    cursor = TextParameter("With `points=exact`: the `next` of the previous page.", default="")

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        return {"from": fields.pop("first"), "to": fields.pop("last"), **fields}


class JobMetricsApi(ProjectApi):
    @endpoint("job_metrics", Operation.PROJECT_READ, MetricsOutput, query=MetricsQuery)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Read the metrics of a job.

        By default, the points of each metric are combined into buckets over the whole range of steps, with minimum,
        maximum, mean and last value. With `points=exact` the stored points are returned page by page. The last row of a
        metric is always its newest point.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        query = self.query
        names = [name for name in query["names"].split(",") if name]
        steps = _steps(query["from"], query["to"])
        if query["points"] is PointForm.EXACT:
            series = metric_points(
                job=job, names=names, steps=steps, limit=query["limit"], cursor=query["cursor"]
            )
        else:
            series = metric_buckets(job=job, names=names, steps=steps, num_buckets=query["buckets"])
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


def _steps(first: int, last: int | None) -> Steps:
    last = MAX_STEP if last is None else last
    if first > last:
        raise field_error("from", f"{first} is not accepted; accepted: at most `to`, which is {last}")
    return Steps(first, last)
