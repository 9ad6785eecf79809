"""Exchanges places between owners, so that units stay in the classes where their owners are at work.

Takes an allocation that gives every owner its number of units, and where owners are at work now. Units are given one by
one, so one owner may have got a place where another one is at work, while that one got a place elsewhere. An exchange
lets at least one of them stay. Without that, engines would go from class to class in ever new circles although no owner
has more or fewer of them.

Invariants: every owner keeps its number of units, and their cost; every class keeps its number; no owner gets a class
that it may not use; an owner leaves no class where it is at work.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from seamlessflow.core.scheduling.passes.allocation import Allocation, Kind

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(slots=True, eq=False)
class Stay(Generic[Owner]):
    """Where an owner is at work. `classes`: those that it may use; `homes`: on how many machines of each it works."""

    owner: Owner
    classes: Kind
    homes: Counter[int]


def places_exchange(
    allocation: Allocation[Owner], stays: Sequence[Stay[Owner]], costs: Sequence[float]
) -> None:
    """Exchange places as long as that lets a unit stay. `costs`: of a unit in each class."""
    _Exchange(allocation, stays, costs).run()


class _Exchange(Generic[Owner]):
    """`_new`: by class, who has units there beyond those that are at work there; it may hold some who had."""

    def __init__(
        self, allocation: Allocation[Owner], stays: Sequence[Stay[Owner]], costs: Sequence[float]
    ) -> None:
        self._allocation = allocation
        self._costs = costs
        self._moving = [one for one in stays if allocation.placed(one.owner) != one.homes]
        self._new: dict[int, list[Stay[Owner]]] = defaultdict(list)
        for one in self._moving:
            for number, num in allocation.placed(one.owner).items():
                self._new[number] += [one] * (num - one.homes[number])

    def run(self) -> None:
        for one in self._moving:
            for home, num in one.homes.items():
                while self._placed(one, home) < num and self._stays(one, home):
                    pass

    def _stays(self, one: Stay[Owner], home: int) -> bool:
        """Let one unit more stay in `home`, for one elsewhere. Returns False if no owner takes that."""
        others = self._new[home]
        for place in range(len(others) - 1, -1, -1):
            other = others[place]
            if not self._is_new(other, home):
                others.pop(place)
                continue
            number = self._given(one, other, home)
            if number is not None:
                others.pop(place)
                self._move(one, number, home, other)
                return True
        return False

    def _given(self, one: Stay[Owner], other: Stay[Owner], home: int) -> int | None:
        """Return a class where the one is new, for the other, at the same cost."""
        for number in self._allocation.placed(one.owner):
            if (
                number in other.classes
                and self._costs[number] == self._costs[home]
                and self._is_new(one, number)
            ):
                return number
        return None

    def _move(self, one: Stay[Owner], number: int, home: int, other: Stay[Owner]) -> None:
        self._allocation.remove(other.owner, home)
        self._allocation.remove(one.owner, number)
        self._allocation.add(other.owner, other.classes, (number,))
        self._allocation.add(one.owner, one.classes, (home,))
        if self._is_new(other, number):
            self._new[number].append(other)

    def _placed(self, one: Stay[Owner], number: int) -> int:
        return self._allocation.placed(one.owner).get(number, 0)

    def _is_new(self, one: Stay[Owner], number: int) -> bool:
        return self._placed(one, number) > one.homes[number]
