"""Names an engine: a rollout phase, and the engine's number among those of the phase.

Gateways write these names as keys of JSON objects, and the control plane reads them. The first engine is named by its
phase alone, as when a phase had only one engine.
"""

from typing import NamedTuple, Self
from uuid import UUID

_BETWEEN = "/"


class EngineKey(NamedTuple):
    phase_id: UUID
    replica: int = 0

    def __str__(self) -> str:
        return f"{self.phase_id}{_BETWEEN}{self.replica}" if self.replica else str(self.phase_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote. Raises ValueError."""
        phase_id, _, replica = text.partition(_BETWEEN)
        return cls(UUID(phase_id), int(replica or 0))
