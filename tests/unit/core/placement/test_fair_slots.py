"""The slots of an engine are divided fairly among gateways, and unused ones are lent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.placement.fair_slots import fair_slots

DEMANDS = st.dictionaries(st.text(max_size=5), st.integers(0, 1000), min_size=1, max_size=8)
CAPACITIES = st.integers(1, 500)


@pytest.mark.parametrize(
    "capacity,demands,slots",
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
def test_examples(capacity: int, demands: dict[str, int], slots: dict[str, int]) -> None:
    assert fair_slots(capacity, demands) == slots


@given(CAPACITIES, DEMANDS)
def test_all_of_the_capacity_is_given_and_every_gateway_gets_some(
    capacity: int, demands: dict[str, int]
) -> None:
    slots = fair_slots(capacity, demands)
    assert slots.keys() == demands.keys()
    assert sum(slots.values()) == max(capacity, len(demands))
    assert min(slots.values()) >= 1


@given(CAPACITIES, DEMANDS)
def test_no_gateway_waits_while_another_has_more_than_it_wants_or_much_more(
    capacity: int, demands: dict[str, int]
) -> None:
    slots = fair_slots(capacity, demands)
    for short in (member for member in demands if slots[member] < demands[member]):
        for other in demands:
            assert slots[other] <= max(1, demands[other])
            assert slots[other] <= slots[short] + 1
