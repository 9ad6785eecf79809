"""A generic transition table. Invariant: a status changes only by a listed move."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

State = TypeVar("State", bound=StrEnum)


class IllegalMove(ValueError):
    """A move that the table does not list."""


class TransitionTable(Generic[State]):
    """Allowed moves of one kind of object. States without outgoing moves are terminal."""

    def __init__(self, kind: str, moves: Mapping[State, frozenset[State]]) -> None:
        self.kind = kind
        self.moves = moves

    @property
    def terminal(self) -> frozenset[State]:
        """States without outgoing moves."""
        return frozenset(state for state, targets in self.moves.items() if not targets)

    def allows(self, source: State, target: State) -> bool:
        return target in self.moves[source]

    def sources(self, target: State) -> frozenset[State]:
        """Return the states from which `target` can be reached: the `WHERE state IN (…)` of a compare-and-set."""
        return frozenset(state for state, targets in self.moves.items() if target in targets)

    def check(self, source: State, target: State) -> None:
        if not self.allows(source, target):
            allowed = ", ".join(sorted(self.moves[source])) or "nothing: it is terminal"
            raise IllegalMove(
                f"a {self.kind} cannot go from {source} to {target}; from {source} it may go to {allowed}"
            )
