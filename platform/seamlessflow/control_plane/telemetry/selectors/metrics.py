"""Reads the metrics of a job: gathered in buckets over a range of steps, or point by point in pages.

Invariant: every point of the range is in the answer, or the answer names the next page; the newest point of a metric
is the last row of its columns. A row of the table that stands for several points (`first_step`, `num_points`,
`value_min`, `value_max` and `value_sum` are set, `step` and `value` are those of its last point) counts as all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.telemetry.buckets import bucket_width
from seamlessflow.runtime.sql import statements

COLUMNS = ("first_step", "step", "count", "min", "max", "mean", "value")

SQL = statements(__name__)

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
    (stored,) = _rows("range", job, names=shown, first=steps.first, last=steps.last)
    if stored.first_step is None or stored.first_step > stored.last_step:
        return Series(None, None, 1, None, {})
    first, last = max(stored.first_step, steps.first), stored.last_step
    width = bucket_width(first, last, num_buckets)
    rows = _rows("buckets", job, names=shown, first=steps.first, last=steps.last, width=width)
    return Series(first, last, width, None, _columns(rows))


def metric_points(*, job: Job, names: Sequence[str], steps: Steps, limit: int, cursor: str) -> Series:
    """Return the range's stored points by name, then step: those after `cursor`, at most `limit` of them."""
    after_step, after_name = _cursor_read(cursor)
    rows = _rows(
        "points",
        job,
        names=_names(job, names),
        first=steps.first,
        last=steps.last,
        after_name=after_name,
        after_step=after_step,
        limit=limit + 1,
    )
    page = rows[:limit]
    follows = f"{page[-1].step}:{page[-1].name}" if len(rows) > limit else None
    edges = [row.step for row in page]
    return Series(min(edges, default=None), max(edges, default=None), None, follows, _columns(page))


def _cursor_read(cursor: str) -> tuple[int, str]:
    if not cursor:
        return -1, ""
    step, _, name = cursor.partition(":")
    if not (step.isascii() and step.isdecimal() and len(step) < 20 and name):
        raise field_error("cursor", f"{cursor!r} is not accepted; accepted: the `next` of an earlier answer")
    return int(step), name


def _names(job: Job, names: Sequence[str]) -> list[str]:
    return list(names) or [row.name for row in _rows("names", job)]


def _columns(rows: Sequence[Any]) -> Columns:
    by_name = {name: list(of_name) for name, of_name in groupby(rows, attrgetter("name"))}
    return {
        name: {column: [getattr(row, column) for row in of_name] for column in COLUMNS}
        for name, of_name in by_name.items()
    }


def _rows(name: str, job: Job, **values: Any) -> list[Any]:
    return named_rows(SQL[name], {"job_id": job.id, **values})
