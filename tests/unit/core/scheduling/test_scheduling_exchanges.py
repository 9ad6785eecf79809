"""Units stay where their owners are at work, so that a large fleet comes to rest."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.scheduling.explain.dry_run import obeyed
from seamlessflow.core.scheduling.passes.allocation import Allocation
from seamlessflow.core.scheduling.passes.exchanges import Stay, places_exchange
from seamlessflow.core.scheduling.scheduler import decide
from tests.benchmarks.scheduler import Size, fleet

NUM_CLASSES = 4
CLASSES = st.lists(st.integers(0, NUM_CLASSES - 1), min_size=1, unique=True).map(tuple)
UNLIKE = (1.0, 1.0, 2.0, 2.0)


def stay(owner: str, *homes: int, classes: tuple[int, ...] = (0, 1, 2, 3)) -> Stay[str]:
    return Stay(owner, classes, Counter(homes))


def test_two_owners_that_got_each_other_s_places_stay_where_they_are() -> None:
    allocation: Allocation[str] = Allocation([1, 1, 0, 0])
    allocation.add("a", (0, 1), (1,))
    allocation.add("b", (0, 1), (0,))
    places_exchange(allocation, [stay("a", 0), stay("b", 1)], [1.0] * NUM_CLASSES)
    assert (allocation.placed("a"), allocation.placed("b")) == ({0: 1}, {1: 1})


def test_who_is_new_takes_the_free_place_and_leaves_that_of_another() -> None:
    allocation: Allocation[str] = Allocation([1, 1, 1, 0])
    for owner, number in (("new", 0), ("a", 1), ("b", 2)):
        allocation.add(owner, (0, 1, 2), (number,))
    places_exchange(allocation, [stay("new"), stay("a", 0), stay("b", 1)], [1.0] * NUM_CLASSES)
    assert [allocation.placed(owner) for owner in ("new", "a", "b")] == [{2: 1}, {0: 1}, {1: 1}]


def test_places_of_unlike_cost_or_that_the_other_may_not_use_are_not_exchanged() -> None:
    for costs, classes in (((1.0, 2.0, 1.0, 1.0), (0, 1)), ((1.0,) * NUM_CLASSES, (0,))):
        allocation: Allocation[str] = Allocation([1, 1, 0, 0])
        allocation.add("a", (0, 1), (1,))
        allocation.add("new", classes, (0,))
        places_exchange(allocation, [stay("a", 0), stay("new", classes=classes)], costs)
        assert (allocation.placed("a"), allocation.placed("new")) == ({1: 1}, {0: 1})


@given(
    st.lists(
        st.tuples(CLASSES, st.integers(0, 4), st.lists(st.integers(0, NUM_CLASSES - 1), max_size=4)),
        max_size=6,
    ),
    st.lists(st.integers(0, 4), min_size=NUM_CLASSES, max_size=NUM_CLASSES),
)
def test_an_exchange_changes_nobody_s_number_and_drives_nobody_out(
    owners: list[tuple[tuple[int, ...], int, list[int]]], capacities: list[int]
) -> None:
    allocation: Allocation[int] = Allocation(capacities)
    stays = [
        Stay(owner, classes, Counter(one for one in homes if one in classes))
        for owner, (classes, _, homes) in enumerate(owners)
    ]
    for owner, (classes, num, _) in enumerate(owners):
        for _ in range(num):
            allocation.add(owner, classes)
    before = {one.owner: dict(allocation.placed(one.owner)) for one in stays}
    free = list(allocation.free)
    places_exchange(allocation, stays, UNLIKE)
    assert allocation.free == free
    for one in stays:
        now, was = allocation.placed(one.owner), before[one.owner]
        assert sum(now.values()) == sum(was.values())
        assert sum(num * UNLIKE[number] for number, num in now.items()) == sum(
            num * UNLIKE[number] for number, num in was.items()
        )
        assert set(now) <= set(one.classes)
        for number, home in one.homes.items():
            assert min(now.get(number, 0), home) >= min(was.get(number, 0), home), "it stays where it stayed"


def test_a_large_fleet_under_constant_demand_comes_to_rest() -> None:
    snapshot = fleet(Size(3000, 300), random.Random(0))
    for _ in range(6):
        snapshot = obeyed(snapshot, decide(snapshot))
    assert not decide(snapshot).decisions
