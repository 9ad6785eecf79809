"""How many tokens engines had to read again because turns moved, by the phase that the turns left.

The phase's row says which job the machine was handed over to, so the counts are booked there (`turn_news`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class ReadAgain:
    """Tokens that are not booked yet, by phase."""

    _tokens: dict[UUID, int] = field(default_factory=dict)

    def add(self, phase_id: UUID, num_tokens: int) -> None:
        if num_tokens:
            self._tokens[phase_id] = self._tokens.get(phase_id, 0) + num_tokens

    def take(self) -> Mapping[UUID, int]:
        """Return all counts; the caller books them or gives them back."""
        taken, self._tokens = self._tokens, {}
        return taken

    def give_back(self, tokens: Mapping[UUID, int]) -> None:
        for phase_id, num_tokens in tokens.items():
            self.add(phase_id, num_tokens)
