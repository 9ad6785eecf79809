"""Divides an amount among projects or jobs by their weights: weighted max-min fairness of what can be divided."""

from collections.abc import Mapping
from uuid import UUID


def divided(amount: float, weights: Mapping[UUID, float], caps: Mapping[UUID, float]) -> dict[UUID, float]:
    """Divide an amount by weight; whoever reaches its cap leaves the rest to the others.

    With 8 to divide, weights 1:1:2 and a cap of 1 on the last: 3.5, 3.5 and 1.
    """
    parts: dict[UUID, float] = {}
    left = dict(weights)
    while left:
        unit = amount / sum(left.values())
        capped = [one for one, weight in left.items() if one in caps and caps[one] <= weight * unit]
        if not capped:
            return parts | {one: weight * unit for one, weight in left.items()}
        for one in capped:
            parts[one] = float(caps[one])
            amount -= caps[one]
            del left[one]
    return parts
