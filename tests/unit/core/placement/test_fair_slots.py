"""The slots of an engine are divided fairly among gateways, and unused ones are lent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.placement.fair_slots import fair_slots

DEMANDS = st.dictionaries(st.text(max_size=5), st.integers(0, 1000), min_size=1, max_size=8)
CAPACITIES = st.integers(1, 500)


@pytest.mark.parametrize(
    "capacity,demands,shares",
    [
        (10, {"a": 0}, {"a": 10}),
        (10, {"a": 30, "b": 30}, {"a": 5, "b": 5}),
        (10, {"a": 1, "b": 20}, {"a": 1, "b": 9}),
        (10, {"a": 0, "b": 20}, {"a": 1, "b": 9}),
        (10, {"a": 0, "b": 4}, {"a": 3, "b": 7}),
        (10, {"a": 2, "b": 3, "c": 50}, {"a": 2, "b": 3, "c": 5}),
        (2, {"a": 9, "b": 9, "c": 9}, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_examples(capacity: int, demands: dict[str, int], shares: dict[str, int]) -> None:
    assert fair_slots(capacity, demands) == shares


@given(CAPACITIES, DEMANDS)
def test_all_of_the_capacity_is_given_and_everybody_gets_some(capacity: int, demands: dict[str, int]) -> None:
    shares = fair_slots(capacity, demands)
    assert shares.keys() == demands.keys()
    assert sum(shares.values()) == max(capacity, len(demands))
    assert min(shares.values()) >= 1


@given(CAPACITIES, DEMANDS)
def test_nobody_waits_while_another_has_more_than_it_wants_or_much_more(
    capacity: int, demands: dict[str, int]
) -> None:
    shares = fair_slots(capacity, demands)
    for short in (member for member in demands if shares[member] < demands[member]):
        for other in demands:
            assert shares[other] <= max(1, demands[other])
            assert shares[other] <= shares[short] + 1
