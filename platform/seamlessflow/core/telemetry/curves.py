"""A job's mean reward by update, thin enough to draw beside its name.

Invariant: extending a curve update by update gives the same curve as all updates at once. Buckets lie on the grid of
`core.telemetry.buckets`, so two neighbours can be merged without the points they were made of.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seamlessflow.core.telemetry.buckets import bucket_width


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The mean reward of `weight` groups; `last` (1, 2, …) is the update of the newest of them."""

    last: int
    mean: float
    weight: int

    def joined(self, later: "CurvePoint") -> "CurvePoint":
        weight = self.weight + later.weight
        return CurvePoint(later.last, self.mean + (later.mean - self.mean) * (later.weight / weight), weight)


def curve_extended(
    curve: Iterable[CurvePoint], updates: Iterable[CurvePoint], *, num_points: int
) -> list[CurvePoint]:
    """Return at most `num_points` points for the curve and the updates after it, both given in order.

    With 48 points, each is one update; update 49 makes each bucket two updates wide.
    """
    points = [point for point in (*curve, *updates) if point.weight]
    if not points:
        return []
    width = bucket_width(1, points[-1].last, num_points)
    buckets: dict[int, CurvePoint] = {}
    for point in points:
        bucket = point.last // width
        buckets[bucket] = buckets[bucket].joined(point) if bucket in buckets else point
    return list(buckets.values())
