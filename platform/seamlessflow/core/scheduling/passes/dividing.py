"""Divides machines among projects or jobs by their weights: weighted max-min fairness of what can be divided.

`divided` divides an amount that each of them can use. `Division` divides machines of several classes among takers that
may use only some of the classes, as tags and pools say. No taker can have more there unless one has less that has
no more by its weight; what only some can use is theirs alone, and so they take less of what others can use too.

Example: 8 machines, of which the first two projects may use only two and the third any. Their entitlements are 1, 1 and
6.

Invariants: entitlements sum to what can be used, and all of them can be had at once.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TypeVar
from uuid import UUID

Taker = TypeVar("Taker", bound=Hashable)
SLIGHT = 1e-6  # of a machine: less comes from rounding


def divided(amount: float, weights: Mapping[Taker, float], caps: Mapping[Taker, float]) -> dict[Taker, float]:
    """Divide an amount by weight; a taker that reaches its cap leaves the rest to the others.

    With 8 to divide, weights 1:1:2 and a cap of 1 on the last: 3.5, 3.5 and 1.
    """
    entitlements: dict[Taker, float] = {}
    left = dict(weights)
    while left:
        unit = amount / sum(left.values())
        capped = [one for one, weight in left.items() if one in caps and caps[one] <= weight * unit]
        if not capped:
            return entitlements | {one: weight * unit for one, weight in left.items()}
        for one in capped:
            entitlements[one] = float(caps[one])
            amount -= caps[one]
            del left[one]
    return entitlements


@dataclass(frozen=True, slots=True)
class Use:
    """Up to `most` machines of the classes in `reach`."""

    reach: frozenset[int]
    most: float


class Division:
    """Divides the machines of some classes. A given machine stays given, but may be moved between classes."""

    def __init__(self, capacities: Mapping[int, float]) -> None:
        self._capacities = capacities
        self._given: dict[Hashable, tuple[Sequence[Use], float]] = {}

    def num_machines(self, classes: Collection[int]) -> float:
        return sum(self._capacities.get(number, 0) for number in classes)

    def give(self, taker: Hashable, uses: Sequence[Use], num: float) -> None:
        self._given[taker] = (uses, num)

    def without(self, taker: Hashable) -> "Division":
        """Return the same without what this taker was given."""
        other = Division(self._capacities)
        other._given = {one: given for one, given in self._given.items() if one != taker}
        return other

    def left_for(self, uses: Sequence[Use], most: float = inf) -> float:
        """Return how many machines one taker more could have."""
        most = min(most, _num_wanted(uses))
        if (num_left := self._left_to_all([uses])) is not None:
            return min(num_left, most)
        return self._most({"": most}, {"": uses}, {})

    def entitlements(
        self,
        weights: Mapping[UUID, float],
        uses: Mapping[UUID, Sequence[Use]],
        caps: Mapping[UUID, float] | None = None,
        most: float = inf,
    ) -> dict[UUID, float]:
        """Divide the rest, at most `most`, among these takers."""
        caps = {one: min(_num_wanted(uses[one]), (caps or {}).get(one, inf)) for one in weights}
        if (num_left := self._left_to_all(uses.values())) is not None:
            return divided(min(num_left, most), weights, caps)
        entitlements: dict[UUID, float] = {}
        while left := [one for one in weights if one not in entitlements]:
            found = self._tightest(left, weights, uses, caps, entitlements, most)
            entitlements |= found
            most -= sum(found.values())
        return entitlements

    def _left_to_all(self, uses: Iterable[Sequence[Use]]) -> float | None:
        """Return the number left if all takers may use the same machines, which needs no flow; else None."""
        every = (*uses, *(own for own, _ in self._given.values()))
        reaches = {use.reach for own in every for use in own}
        if len(reaches) != 1:
            return None
        return max(self.num_machines(*reaches) - sum(num for _, num in self._given.values()), 0.0)

    def _tightest(
        self,
        group: list[UUID],
        weights: Mapping[UUID, float],
        uses: Mapping[UUID, Sequence[Use]],
        caps: Mapping[UUID, float],
        entitlements: dict[UUID, float],
        most: float,
    ) -> dict[UUID, float]:
        """Return the entitlements of those who, together, can use the least by weight. Whenever some of a group cannot
        have what an undivided fleet would give them, they are the next group."""
        while True:
            own_caps = {one: caps[one] for one in group}
            amount = min(self._most(own_caps, uses, entitlements), most)
            found = divided(amount, {one: weights[one] for one in group}, own_caps)
            short = self._short(entitlements | found, uses)
            lacking = [one for one in group if one in short]
            if not lacking or len(lacking) == len(group):
                return found
            group = lacking

    def _most(
        self,
        wanted: Mapping[Taker, float],
        uses: Mapping[Taker, Sequence[Use]],
        entitlements: Mapping[Taker, float],
    ) -> float:
        """Return how many machines takers can have together beside the entitlements of others."""
        flow = self._flow(entitlements, uses)
        return sum(flow.add(one, uses[one], num) for one, num in wanted.items())

    def _short(
        self, entitlements: Mapping[UUID, float], uses: Mapping[UUID, Sequence[Use]]
    ) -> Collection[Hashable]:
        """Return the takers that compete for machines of which there are too few for such entitlements."""
        flow = self._flow({}, uses)
        placed = [flow.add(one, uses[one], num) > num - SLIGHT for one, num in entitlements.items()]
        return () if all(placed) else flow.full

    def _flow(self, entitlements: Mapping[Taker, float], uses: Mapping[Taker, Sequence[Use]]) -> "_Flow":
        flow = _Flow(self._capacities)
        for taker, (own, num) in self._given.items():
            flow.add(("given", taker), own, num)
        for one, num in entitlements.items():
            flow.add(one, uses[one], num)
        return flow


class _Flow:
    """Machines that flow from takers over their uses to classes: a maximal flow, found by augmenting paths. `full`:
    nodes from which nothing more can flow; that stays so, whatever is added."""

    _END = object()

    def __init__(self, capacities: Mapping[int, float]) -> None:
        self.full: set[Hashable] = set()
        self._free: dict[Hashable, dict[Hashable, float]] = defaultdict(lambda: defaultdict(float))
        for number, num in capacities.items():
            self._free["class", number][self._END] = num

    def add(self, taker: Hashable, uses: Sequence[Use], num: float) -> float:
        """Let up to `num` machines flow from the taker. Returns how many do."""
        for use in uses:
            self._free[taker][taker, use.reach] += use.most
            for number in use.reach:
                self._free[taker, use.reach]["class", number] = inf
        placed = 0.0
        while placed < num and (path := self._path(taker)):
            steps = list(pairwise(path))
            width = min(num - placed, *(self._free[one][other] for one, other in steps))
            for one, other in steps:
                self._free[one][other] -= width
                self._free[other][one] += width
            placed += width
        return placed

    def _path(self, taker: Hashable) -> list[Hashable]:
        came_from: dict[Hashable, Hashable] = {taker: None}
        queue = [taker]
        for node in queue:
            for other, free in self._free[node].items():
                if free <= SLIGHT**2 or other in came_from or other in self.full:
                    continue
                came_from[other] = node
                if other is self._END:
                    return _unrolled(came_from, other)
                queue.append(other)
        self.full.update(queue)
        return []


def _unrolled(came_from: Mapping[Hashable, Hashable], node: Hashable) -> list[Hashable]:
    path = [node]
    while (node := came_from[node]) is not None:
        path.append(node)
    return path[::-1]


def _num_wanted(uses: Sequence[Use]) -> float:
    return sum(use.most for use in uses)
