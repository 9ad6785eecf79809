"""Units of work matched to classes of machines, so that no owner is refused that an exchange could serve.

Takes the capacity of each class; an owner's unit may be in any of its eligible classes. `add` places one more unit, and
moves units of other owners between their own classes if that makes room (an augmenting path of bipartite matching).
Invariants: no class holds more units than its capacity; a unit is only in a class that its owner named; a unit that was
placed stays placed, so greedy filling in any order of fairness is optimal for that order (a transversal matroid). A
fixed unit is never moved.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

Owner = TypeVar("Owner", bound=Hashable)
Kind = tuple[int, ...]  # the classes that may take a unit


@dataclass(slots=True, eq=False)
class _Account:
    """What one owner has: units by class, and their kind there. Unlike an owner, it costs nothing to look up."""

    owner: Hashable
    units: dict[int, int] = field(default_factory=dict)
    kinds: dict[int, Kind] = field(default_factory=dict)


class Allocation(Generic[Owner]):
    def __init__(self, capacities: Sequence[int]) -> None:
        self.free = list(capacities)
        # Units that moved to make space, as owner, class before and class after, until a caller empties the list.
        self.moved: list[tuple[Owner, int, int]] = []
        self._accounts: dict[Owner, _Account] = {}
        # By the classes that owners named: who has units in which class, as keys. Owners of a kind are interchangeable.
        self._holders: dict[Kind, dict[int, dict[_Account, None]]] = defaultdict(dict)

    def placed(self, owner: Owner) -> Mapping[int, int]:
        """Return how many units the owner has in each class."""
        account = self._accounts.get(owner)
        return {} if account is None else account.units

    def num_placed(self, owner: Owner) -> int:
        return sum(self.placed(owner).values())

    def add(
        self, owner: Owner, eligible: Kind, preferred: Sequence[int] = (), *, is_fixed: bool = False
    ) -> bool:
        """Place one more unit of the owner, as `place` does. Returns False if no exchange makes room."""
        return self.place(owner, eligible, preferred, is_fixed=is_fixed) is not None

    def place(
        self, owner: Owner, eligible: Kind, preferred: Sequence[int] = (), *, is_fixed: bool = False
    ) -> int | None:
        """Place one more unit of the owner and return its class; None if no exchange makes room.

        `preferred`: eligible classes to try before the others, in order, as long as they have room themselves.
        """
        number = self._with_room(preferred) if preferred else None
        if number is None:
            number = self._with_room(eligible)
        if number is None:
            number = self._make_room(eligible)
        if number is None:
            return None
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account(owner)
        self._change(account, (number,) if is_fixed else eligible, number, +1)
        return number

    def add_all(self, owner: Owner, eligible: Kind, num: int, preferred: Sequence[int] = ()) -> bool:
        """Place `num` fixed units or none. `preferred`: one class for each unit, and others after them."""
        before = dict(self.placed(owner))
        for done in range(num):
            if not self.add(owner, eligible, preferred[done:], is_fixed=True):
                for number, now in list(self.placed(owner).items()):
                    for _ in range(now - before.get(number, 0)):
                        self.remove(owner, number)
                return False
        return True

    def remove(self, owner: Owner, number: int) -> None:
        """Take back one unit that the owner has in a class."""
        account = self._accounts[owner]
        self._change(account, account.kinds[number], number, -1)

    def _with_room(self, classes: Sequence[int]) -> int | None:
        for number in classes:
            if self.free[number] > 0:
                return number
        return None

    def _make_room(self, eligible: Kind) -> int | None:
        """Free one place in an eligible class by moving one unit of each class on a path to a class with room."""
        came_from: dict[int, tuple[int, Kind] | None] = dict.fromkeys(eligible)
        queue = list(eligible)
        for number in queue:
            for kind, by_class in self._holders.items():
                if number not in by_class:
                    continue
                for other in kind:
                    if other in came_from:
                        continue
                    came_from[other] = (number, kind)
                    if self.free[other] > 0:
                        return self._shift(other, came_from)
                    queue.append(other)
        return None

    def _shift(self, target: int, came_from: dict[int, tuple[int, Kind] | None]) -> int:
        while (step := came_from[target]) is not None:
            source, kind = step
            account = next(reversed(self._holders[kind][source]))
            self._change(account, kind, source, -1)
            self._change(account, kind, target, +1)
            self.moved.append((cast(Owner, account.owner), source, target))
            target = source
        return target

    def _change(self, account: _Account, kind: Kind, number: int, by: int) -> None:
        self.free[number] -= by
        account.kinds[number] = kind
        before = account.units.get(number, 0)
        if before + by:
            account.units[number] = before + by
        else:
            del account.units[number]
        if not before:
            self._holders[kind].setdefault(number, {})[account] = None
        elif not before + by:
            by_account = self._holders[kind][number]
            del by_account[account]
            if not by_account:
                del self._holders[kind][number]
