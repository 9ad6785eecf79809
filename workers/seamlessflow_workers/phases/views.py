"""Phases and children as the supervisor sees them: values without behaviour, taken of one moment.

`reconcile` decides from the known ones what to do, `reading` from a view what the machine is recorded as doing.
"""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role


class ChildKey(NamedTuple):
    """Identifies a child; a machine runs at most one child for each key."""

    job_id: UUID
    role: Role


@dataclass(frozen=True, slots=True)
class KnownPhase:
    phase_id: UUID
    fence: int
    key: ChildKey
    state: PhaseState
    is_abandoned: bool = False  # no longer ordered, being stopped

    @property
    def is_over(self) -> bool:
        return self.state in (PhaseState.ENDED, PhaseState.FAILED)


@dataclass(frozen=True, slots=True)
class KnownChild:
    key: ChildKey
    is_loading: bool


@dataclass(frozen=True, slots=True)
class PhaseView:
    """The live phase. `doing` is what its child said last (train, agent)."""

    role: Role
    state: PhaseState
    job_id: UUID
    doing: LedgerState | None = None
    doing_cause: IdleCause | None = None
    is_awaiting_weights: bool = False
    num_in_flight: int = 0
