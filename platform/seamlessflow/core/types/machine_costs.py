"""The cost of a machine in projects' shares: a number that operators give it. `parse_cost` takes one and returns it
checked."""

from seamlessflow.core.types.limits import Cost, limits_of

ORDINARY_COST = 1.0


class InvalidCost(ValueError):
    pass


def parse_cost(cost: float) -> float:
    """Return the cost. Raises InvalidCost, with the range that is accepted."""
    if refusal := limits_of(Cost).refusal(cost):
        raise InvalidCost(refusal)
    return cost
