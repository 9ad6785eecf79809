"""Reads the metrics of a job: gathered in buckets over a range of steps, or point by point in pages.

Invariant: every point of the range is in the answer, or the answer names the next page; the newest point of a metric
is the last row of its columns. A row of the table that stands for several points (`first_step`, `num_points`,
`value_min`, `value_max` and `value_sum` are set, `step` and `value` are those of its last point) counts as all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.telemetry.buckets import bucket_width

COLUMNS = ("first_step", "step", "count", "min", "max", "mean", "value")

# A step through the unique index per name: a job has dozens of names and may have millions of points.
_NAMES = """
    WITH RECURSIVE names (name) AS (
        SELECT min(name) FROM telemetry_metricpoint WHERE job_id = %(job_id)s
        UNION ALL
        SELECT (SELECT min(name) FROM telemetry_metricpoint WHERE job_id = %(job_id)s AND name > names.name)
        FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
"""
_RANGE = """
    SELECT min(oldest.step), max(newest.step) FROM unnest(%(names)s::text[]) AS asked (name)
    CROSS JOIN LATERAL (
        SELECT coalesce(first_step, step) AS step FROM telemetry_metricpoint
        WHERE job_id = %(job_id)s AND name = asked.name AND step >= %(first)s ORDER BY step LIMIT 1
    ) oldest CROSS JOIN LATERAL (
        SELECT step FROM telemetry_metricpoint
        WHERE job_id = %(job_id)s AND name = asked.name AND step <= %(last)s ORDER BY step DESC LIMIT 1
    ) newest
"""
# The bound on the addends keeps a sum of the largest numbers finite. The newest value of each bucket is looked up
# one by one: a join would read every point of the job a second time, where the rows of an answer are few.
_BUCKETS = """
    WITH buckets AS (
        SELECT name, min(coalesce(first_step, step)) AS first_step, max(step) AS step,
               sum(coalesce(num_points, 1))::bigint AS count,
               min(coalesce(value_min, value)) AS low, max(coalesce(value_max, value)) AS high,
               sum(greatest(least(coalesce(value_sum, value), 1e300), -1e300)) AS total
        FROM telemetry_metricpoint
        WHERE job_id = %(job_id)s AND name = ANY(%(names)s) AND step BETWEEN %(first)s AND %(last)s
        GROUP BY name, step / %(width)s
    )
    SELECT name, b.first_step, b.step, count, low, high, total / count, newest.value
    FROM buckets b CROSS JOIN LATERAL (
        SELECT value FROM telemetry_metricpoint p
        WHERE p.job_id = %(job_id)s AND p.name = b.name AND p.step = b.step LIMIT 1
    ) newest ORDER BY name, b.step
"""
_POINTS = """
    SELECT name, coalesce(first_step, step), step, coalesce(num_points, 1), coalesce(value_min, value),
           coalesce(value_max, value), coalesce(value_sum / num_points, value), value
    FROM telemetry_metricpoint
    WHERE job_id = %(job_id)s AND name = ANY(%(names)s) AND step BETWEEN %(first)s AND %(last)s
      AND (name, step) > (%(after_name)s, %(after_step)s)
    ORDER BY name, step LIMIT %(limit)s
"""

Columns = dict[str, dict[str, list[Any]]]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from `first` to `last`, inclusive."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Series:
    """Columns by metric. `bucket_width`: steps per bucket; None if rows are stored points. `next`: cursor of the next
    page.
    """

    first_step: int | None
    last_step: int | None
    bucket_width: int | None
    next: str | None
    metrics: Columns

    @property
    def truncated(self) -> bool:
        return self.next is not None


def metric_buckets(*, job: Job, names: Sequence[str], steps: Steps, num_buckets: int) -> Series:
    """Return at most `num_buckets` rows of each metric, which together cover every point of the range."""
    shown = _names(job, names)
    ((first, last),) = _rows(_RANGE, job, names=shown, first=steps.first, last=steps.last)
    if first is None or first > last:
        return Series(None, None, 1, None, {})
    first = max(first, steps.first)
    width = bucket_width(first, last, num_buckets)
    rows = _rows(_BUCKETS, job, names=shown, first=steps.first, last=steps.last, width=width)
    return Series(first, last, width, None, _columns(rows))


def metric_points(*, job: Job, names: Sequence[str], steps: Steps, limit: int, cursor: str) -> Series:
    """Return the range's stored points by name, then step: those after `cursor`, at most `limit` of them."""
    after_step, after_name = _cursor_read(cursor)
    rows = _rows(
        _POINTS,
        job,
        names=_names(job, names),
        first=steps.first,
        last=steps.last,
        after_name=after_name,
        after_step=after_step,
        limit=limit + 1,
    )
    page = rows[:limit]
    follows = f"{page[-1][2]}:{page[-1][0]}" if len(rows) > limit else None
    edges = [row[2] for row in page]
    return Series(min(edges, default=None), max(edges, default=None), None, follows, _columns(page))


def _cursor_read(cursor: str) -> tuple[int, str]:
    if not cursor:
        return -1, ""
    step, _, name = cursor.partition(":")
    if not (step.isascii() and step.isdecimal() and len(step) < 20 and name):
        raise field_error("cursor", f"{cursor!r} is not accepted; accepted: the `next` of an earlier answer")
    return int(step), name


def _names(job: Job, names: Sequence[str]) -> list[str]:
    return list(names) or [name for (name,) in _rows(_NAMES, job)]


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    by_name: dict[str, list[tuple[Any, ...]]] = {}
    for name, *values in rows:
        by_name.setdefault(name, []).append(tuple(values))
    return {
        name: dict(zip(COLUMNS, map(list, zip(*members, strict=True)), strict=True))
        for name, members in by_name.items()
    }


def _rows(statement: str, job: Job, **parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"job_id": job.id, **parameters})
        return list(cursor.fetchall())
