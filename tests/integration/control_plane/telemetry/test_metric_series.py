"""Metrics over REST: buckets over the whole range, and exact points page by page, checked by
arithmetic on the rows."""

import json
import math
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.telemetry.models import MetricPoint
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person

pytestmark = pytest.mark.django_db


def asked(person: Person, job: Job, query: str = "") -> dict[str, Any]:
    response = person.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/metrics{query}")
    assert response.status_code == 200, response.content
    body: dict[str, Any] = json.loads(response.content)
    return body


def points_make(job: Job, name: str, values: dict[int, float]) -> None:
    MetricPoint.objects.bulk_create(
        [
            MetricPoint(project=job.project, job=job, name=name, step=step, value=value)
            for step, value in values.items()
        ]
    )


def wave(step: int) -> float:
    return math.sin(step * 0.37) + step / 1000


def many_points_make(job: Job, num_names: int, num_steps: int) -> None:
    """The value of each point is its step."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO telemetry_metricpoint (project_id, job_id, name, step, value, at) "
            "SELECT %s, %s, 'train/m' || lpad(n::text, 2, '0'), s, s, now() "
            "FROM generate_series(1, %s) n, generate_series(1, %s) s",
            [job.project_id, job.id, num_names, num_steps],
        )


def test_the_newest_value_of_a_long_job_is_returned(cast: Cast) -> None:
    job = cast.job()
    many_points_make(job, num_names=30, num_steps=2_000)

    metrics = asked(cast.owner, job)["metrics"]

    assert len(metrics) == 30
    assert {columns["step"][-1] for columns in metrics.values()} == {2_000}
    assert {columns["value"][-1] for columns in metrics.values()} == {2_000.0}


def test_buckets_summarise_their_points(cast: Cast) -> None:
    job = cast.job()
    values = {step: wave(step) for step in range(5, 1_003) if step % 7}
    points_make(job, "train/loss", values)
    points_make(job, "train/entropy", {1: 100.0, 999: 3.0})

    body = asked(cast.owner, job, "?names=train/loss&buckets=100&from=20&to=900")

    assert (body["first_step"], body["last_step"], body["bucket_width"]) == (20, 900, 16)
    assert (body["truncated"], body["next"]) == (False, None)
    assert list(body["metrics"]) == ["train/loss"]
    rows = [
        dict(zip(body["metrics"]["train/loss"], row, strict=True))
        for row in zip(*body["metrics"]["train/loss"].values(), strict=True)
    ]
    expected: dict[int, list[tuple[int, float]]] = {}
    for step, value in values.items():
        if 20 <= step <= 900:
            expected.setdefault(step // 16, []).append((step, value))
    assert len(rows) == len(expected) <= 100
    for row, members in zip(rows, expected.values(), strict=True):
        steps, numbers = zip(*members, strict=True)
        assert (row["first_step"], row["step"], row["count"]) == (steps[0], steps[-1], len(members))
        assert (row["min"], row["max"], row["value"]) == (min(numbers), max(numbers), numbers[-1])
        assert row["mean"] == pytest.approx(sum(numbers) / len(numbers))


def test_a_short_series_is_returned_point_by_point(cast: Cast) -> None:
    job = cast.job()
    points_make(job, "reward/mean", {1: 0.25, 2: 0.5, 9: 1.0})

    body = asked(cast.owner, job)

    assert body["bucket_width"] == 1
    columns = body["metrics"]["reward/mean"]
    assert columns["step"] == columns["first_step"] == [1, 2, 9]
    assert columns["value"] == columns["min"] == columns["max"] == columns["mean"] == [0.25, 0.5, 1.0]


def test_a_rolled_up_row_counts_as_all_of_its_points(cast: Cast) -> None:
    job = cast.job()
    MetricPoint.objects.create(
        project=job.project, job=job, name="train/loss", step=64, value=4.0,
        first_step=1, num_points=64, value_min=-1.0, value_max=9.0, value_sum=128.0,
    )  # fmt: skip
    points_make(job, "train/loss", {65: 1.0, 130: 7.0})

    body = asked(cast.owner, job, "?buckets=1")
    assert body["first_step"] == 1
    assert {name: column[0] for name, column in body["metrics"]["train/loss"].items()} == {
        "first_step": 1, "step": 130, "count": 66, "min": -1.0, "max": 9.0, "mean": 136 / 66, "value": 7.0,
    }  # fmt: skip
    exact = asked(cast.owner, job, "?points=exact")["metrics"]["train/loss"]
    assert (exact["step"], exact["count"], exact["mean"]) == ([64, 65, 130], [64, 1, 1], [2.0, 1.0, 7.0])


def test_pages_of_exact_points_contain_every_point_once(cast: Cast) -> None:
    job = cast.job()
    for name in ("train/a", "train/b", "train/c"):
        points_make(job, name, {step: wave(step) for step in range(1, 11)})

    seen, pages, cursor = [], 0, ""
    while True:
        body = asked(cast.owner, job, f"?points=exact&from=3&limit=7{cursor}")
        pages += 1
        for name, columns in body["metrics"].items():
            seen += [(name, *row) for row in zip(columns["step"], columns["value"], strict=True)]
        assert body["truncated"] is (body["next"] is not None)
        if not body["truncated"]:
            break
        cursor = f"&cursor={body['next']}"

    assert pages == 4
    assert seen == [
        (name, step, wave(step)) for name in ("train/a", "train/b", "train/c") for step in range(3, 11)
    ]


def test_the_largest_numbers_do_not_become_infinite(cast: Cast) -> None:
    job = cast.job()
    points_make(job, "train/loss", {1: 1.7e308, 2: 1.7e308, 3: -1.7e308})

    columns = asked(cast.owner, job, "?buckets=1")["metrics"]["train/loss"]

    assert (columns["min"], columns["max"], columns["count"]) == ([-1.7e308], [1.7e308], [3])
    assert math.isfinite(columns["mean"][0])


def test_a_job_without_points_says_so(cast: Cast) -> None:
    job = cast.job()

    for query in ("", "?names=reward/mean", "?points=exact", "?from=7"):
        body = asked(cast.owner, job, query)
        assert (body["metrics"], body["first_step"], body["truncated"]) == ({}, None, False)


@pytest.mark.parametrize(
    "query,field",
    [
        ("?points=all", "points"),
        ("?buckets=0", "buckets"),
        ("?buckets=5001", "buckets"),
        ("?from=5&to=4", "from"),
        ("?points=exact&cursor=12", "cursor"),
        ("?points=exact&limit=50001", "limit"),
    ],
)
def test_bad_parameters_are_named(cast: Cast, query: str, field: str) -> None:
    path = f"jobs/{show_id(IdKind.JOB, cast.job().id)}/metrics{query}"

    response = cast.owner.call("GET", path)

    assert response.status_code == 400
    assert [fault["field"] for fault in json.loads(response.content)["errors"]] == [field]


def test_the_number_of_queries_does_not_grow_with_the_names(cast: Cast) -> None:
    job = cast.job()

    def num_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            asked(cast.owner, job)
        return len(queries)

    points_make(job, "train/a", {1: 1.0})
    num_queries()  # the first use of a token is noted
    few = num_queries()
    many_points_make(job, num_names=40, num_steps=3)

    assert num_queries() == few
