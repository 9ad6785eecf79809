"""The curve of rewards beside each job in the list. Publications store it, so that a list need not read old groups.

Invariant: a curve covers every published batch. Batches that were published without extending the stored curve, for
example by an older release, are read from the groups and added.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.jobs.models import Job, RewardCurve
from seamlessflow.core.telemetry.curves import CurvePoint, curve_extended

NUM_CURVE_POINTS = 48

# The bound keeps the averaged numbers, and the differences of two means, finite.
_UPDATES = """
    SELECT asked.job_id, g.batch_number, g.mean, g.weight
    FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS asked (job_id, after, last) CROSS JOIN LATERAL (
        SELECT batch_number, avg(greatest(least(reward_mean, 1e300), -1e300)) AS mean, count(reward_mean) AS weight
        FROM trajectory_group
        WHERE job_id = asked.job_id AND batch_number > asked.after AND batch_number <= asked.last
        GROUP BY batch_number
    ) g ORDER BY 1, 2
"""


def job_reward_curves(job_ids: Iterable[UUID]) -> dict[UUID, list[tuple[int, float]]]:
    """Return each job's mean rewards by published batch: at most NUM_CURVE_POINTS pairs of (last batch, mean)."""
    curves = {job_id: points for job_id, (points, _) in _curves(job_ids).items() if points}
    return {job_id: [(point.last, point.mean) for point in points] for job_id, points in curves.items()}


def job_reward_curve_store(*, job_id: UUID) -> None:
    """Extend the stored curve by the batches published since. Call this in the transaction of a publication."""
    curves = [
        RewardCurve(
            job_id=job_id,
            points=[[point.last, point.mean, point.weight] for point in points],
            through=through,
        )
        for points, through in _curves([job_id]).values()
    ]
    RewardCurve.objects.bulk_create(
        curves, update_conflicts=True, unique_fields=["job"], update_fields=["points", "through"]
    )


def _curves(job_ids: Iterable[UUID]) -> dict[UUID, tuple[list[CurvePoint], int]]:
    """Return each job's curve, and the last batch that it covers."""
    columns = ("id", "published_batch", "stored_curve__through", "stored_curve__points")
    rows = Job.objects.filter(id__in=list(job_ids)).values_list(*columns)
    known = {
        job_id: (published, through or 0, [CurvePoint(*point) for point in points or ()])
        for job_id, published, through, points in rows
    }
    fresh = _updates(
        {job_id: (through, last) for job_id, (last, through, _) in known.items() if through < last}
    )
    return {
        job_id: (curve_extended(points, fresh.get(job_id, ()), num_points=NUM_CURVE_POINTS), last)
        for job_id, (last, _, points) in known.items()
    }


def _updates(asked: Mapping[UUID, tuple[int, int]]) -> dict[UUID, list[CurvePoint]]:
    """Return a point for each job's batches after the first number, up to and including the second."""
    found: dict[UUID, list[CurvePoint]] = {}
    if asked:
        with connection.cursor() as cursor:
            cursor.execute(_UPDATES, [list(asked), *map(list, zip(*asked.values(), strict=True))])
            for job_id, batch_number, mean, weight in cursor.fetchall():
                found.setdefault(job_id, []).append(CurvePoint(batch_number, mean, weight))
    return found
