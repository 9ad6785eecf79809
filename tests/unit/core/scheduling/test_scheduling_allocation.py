"""Units matched to classes: nobody is refused whom an exchange could serve, and nobody loses a place."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.scheduling.passes.allocation import Allocation

CLASSES = st.lists(st.integers(0, 2), unique=True, max_size=3).map(lambda chosen: tuple(sorted(chosen)))


def most_units(capacities: list[int], owners: list[tuple[int, ...]]) -> int:
    """Return how many of the owners' units fit, by trying everything."""
    best = 0
    for choice in product(*[(None, *owner) for owner in owners]):
        used = [choice.count(number) for number in range(len(capacities))]
        if all(num <= most for num, most in zip(used, capacities, strict=True)):
            best = max(best, sum(number is not None for number in choice))
    return best


@given(st.lists(st.integers(0, 2), min_size=3, max_size=3), st.lists(CLASSES, max_size=6))
def test_as_many_units_are_placed_as_fit_whatever_the_order(
    capacities: list[int], owners: list[tuple[int, ...]]
) -> None:
    allocation: Allocation[int] = Allocation(capacities)
    placed = [allocation.add(number, eligible) for number, eligible in enumerate(owners)]
    assert sum(placed) == most_units(capacities, owners)
    for number, eligible in enumerate(owners):
        assert set(allocation.placed(number)) <= set(eligible)
        assert allocation.num_placed(number) == placed[number], "a place that was given is kept"
    used = [sum(allocation.placed(one).get(at, 0) for one in range(len(owners))) for at in range(3)]
    assert [most - free for most, free in zip(capacities, allocation.free, strict=True)] == used


def test_a_fixed_unit_is_never_moved() -> None:
    allocation: Allocation[str] = Allocation([1, 1])
    assert allocation.add("trainer", (0, 1), is_fixed=True)
    assert not allocation.add("engine", (0,)), "it would have to move the trainer"
    assert allocation.add("engine", (0, 1))


def test_several_units_are_placed_together_or_not_at_all() -> None:
    allocation: Allocation[str] = Allocation([1, 2])
    assert not allocation.add_all("gang", (0, 1), 4)
    assert (allocation.free, allocation.placed("gang")) == ([1, 2], {})
    assert allocation.add_all("gang", (0, 1), 3)
    assert allocation.free == [0, 0]


def test_a_preferred_class_is_taken_first_as_long_as_it_has_room() -> None:
    allocation: Allocation[str] = Allocation([1, 1])
    assert allocation.add("engine", (0, 1), preferred=(1,))
    assert allocation.placed("engine") == {1: 1}
    assert allocation.add("engine", (0, 1), preferred=(1,))
    assert allocation.placed("engine") == {0: 1, 1: 1}


def test_units_that_moved_to_make_room_are_told() -> None:
    allocation: Allocation[str] = Allocation([1, 1])
    assert allocation.place("either", (0, 1)) == 0
    assert allocation.place("only", (0,)) == 0
    assert (allocation.moved, allocation.placed("either")) == ([("either", 0, 1)], {1: 1})
