"""Reward curves are thinned out, and the same whether they grow update by update or are computed at
once."""

import random

from seamlessflow.core.telemetry.curves import CurvePoint, curve_extended

NUM_POINTS = 48


def updates(number: int) -> list[CurvePoint]:
    draw = random.Random(3)
    return [CurvePoint(last, draw.uniform(-2, 2), draw.randint(1, 8)) for last in range(1, number + 1)]


def test_a_curve_that_grew_update_by_update_equals_the_one_computed_at_once() -> None:
    every, grown = updates(1000), list[CurvePoint]()
    for update in every:
        grown = curve_extended(grown, [update], num_points=NUM_POINTS)
        assert len(grown) <= NUM_POINTS
    whole = curve_extended([], every, num_points=NUM_POINTS)
    assert [(point.last, point.weight) for point in grown] == [(point.last, point.weight) for point in whole]
    assert max(abs(a.mean - b.mean) for a, b in zip(grown, whole, strict=True)) < 1e-9
    assert sum(point.weight for point in grown) == sum(update.weight for update in every)


def test_each_update_is_a_point_of_a_short_curve() -> None:
    few = updates(40)
    assert curve_extended(few[:10], few[10:], num_points=NUM_POINTS) == few


def test_updates_without_a_reward_have_no_point() -> None:
    assert curve_extended([], [CurvePoint(1, 0.0, 0)], num_points=NUM_POINTS) == []


def test_the_largest_rewards_leave_a_finite_mean() -> None:
    extremes = [CurvePoint(2, 1e300, 1), CurvePoint(3, -1e300, 1)]
    [point] = curve_extended([], extremes, num_points=1)
    assert point == CurvePoint(3, 0.0, 2)
