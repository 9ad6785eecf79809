"""The cost of a machine in projects' shares: a number that operators give it. `parse_cost` takes one and returns it
checked."""

from math import isfinite

ORDINARY_COST = 1.0
LEAST_COST, MOST_COST = 0.01, 1000.0


class InvalidCost(ValueError):
    pass


def parse_cost(cost: float) -> float:
    """Return the cost. Raises InvalidCost, with the range that is accepted."""
    if not isfinite(cost) or not LEAST_COST <= cost <= MOST_COST:
        raise InvalidCost(f"{cost:g} is not accepted; accepted: {LEAST_COST:g} to {MOST_COST:g}")
    return cost
