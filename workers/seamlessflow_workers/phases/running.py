"""What a supervisor knows of one phase, and the values that it takes of phases and children at one moment.

`RunningPhase` is moved by the child that carries it out; each move follows the transition table of core. Two callbacks
tell the supervisor of moves (worth a heartbeat) and of progress between them (worth a look at the ledger). The values
have no behaviour: `reconcile` decides by the known phases and children what to do, and `reading` by a view what the
machine is recorded as doing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PHASE_MOVES, PhaseState
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.worker import PhaseOrder, PhaseReport, WeightsArrival
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
    """The live phase. `doing` is what its child last reported (train, agent)."""

    role: Role
    state: PhaseState
    job_id: UUID
    doing: LedgerState | None = None
    doing_cause: IdleCause | None = None
    is_awaiting_weights: bool = False
    num_in_flight: int = 0


@dataclass(slots=True)
class RunningPhase:
    order: PhaseOrder
    on_moved: Callable[[], None]
    on_observed: Callable[[], None]
    state: PhaseState = PhaseState.STARTING
    reason: str = ""
    is_abandoned: bool = False
    endpoint: str | None = None
    served_version: int | None = None
    arrival: WeightsArrival | None = None
    doing: Doing | None = None
    is_awaiting_weights: bool = False
    count_in_flight: Callable[[], int] = field(default=int)

    @property
    def key(self) -> ChildKey:
        return ChildKey(self.order.job_id, self.order.role)

    @property
    def is_over(self) -> bool:
        return self.state in PHASE_MOVES.terminal

    def activate(self) -> None:
        self._move(PhaseState.ACTIVE)

    def drain(self) -> None:
        self._move(PhaseState.DRAINING)

    def end(self, reason: str = "") -> None:
        self.reason = reason
        self._move(PhaseState.ENDED)

    def fail(self, reason: str) -> None:
        self.reason = reason
        self._move(PhaseState.FAILED)

    def do(self, doing: Doing | None) -> None:
        self.doing = doing
        self.on_observed()

    def serve(self, version: int) -> None:
        """Note that the engine serves `version` from now on."""
        self.served_version = version
        self.doing = None
        self.on_moved()

    def await_weights(self, is_awaiting: bool) -> None:
        self.is_awaiting_weights = is_awaiting
        self.on_observed()

    def known(self) -> KnownPhase:
        return KnownPhase(self.order.phase_id, self.order.fence, self.key, self.state, self.is_abandoned)

    def report(self) -> PhaseReport:
        is_rollout = self.order.role is Role.ROLLOUT
        return PhaseReport(
            phase_id=self.order.phase_id,
            fence=self.order.fence,
            state=self.state,
            reason=self.reason,
            endpoint=self.endpoint,
            served_version=self.served_version,
            num_in_flight=self.count_in_flight() if is_rollout else None,
            arrival=self.arrival,
        )

    def view(self) -> PhaseView:
        return PhaseView(
            role=self.order.role,
            state=self.state,
            job_id=self.order.job_id,
            doing=self.doing.state if self.doing else None,
            doing_cause=self.doing.cause if self.doing else None,
            is_awaiting_weights=self.is_awaiting_weights,
            num_in_flight=self.count_in_flight(),
        )

    def _move(self, target: PhaseState) -> None:
        PHASE_MOVES.check(self.state, target)
        self.state = target
        self.doing = None
        if target is PhaseState.DRAINING:
            self.on_observed()  # the control plane ordered it; a heartbeat now would delay the one about the end
        else:
            self.on_moved()
