"""The supervisor's knowledge of one phase, and the values that it takes of phases and children at one moment.

`RunningPhase` is moved by the child that carries it out; each move follows the transition table of core. Two callbacks
inform the supervisor of moves (worth a heartbeat) and of progress between them (worth a look at the ledger). The values
have no behaviour: `reconcile` decides by the known phases and children what to do, and `reading` by a view what the
machine is recorded as doing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PHASE_MOVES, FailureCause, PhaseState
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.worker import EngineReport, PhaseOrder, PhaseReport, WeightsArrival
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
    num_engines: int = 1  # that serve


@dataclass(slots=True)
class RunningPhase:
    order: PhaseOrder
    on_moved: Callable[[], None]
    on_observed: Callable[[], None]
    state: PhaseState = PhaseState.STARTING
    reason: str = ""
    cause: FailureCause = FailureCause.WORK
    is_abandoned: bool = False
    arrival: WeightsArrival | None = None
    doing: Doing | None = None
    is_awaiting_weights: bool = False
    count_in_flight: Callable[[], int] = field(default=int)
    list_engines: Callable[[], list[EngineReport]] = field(default=list)

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

    def fail(self, reason: str, cause: FailureCause = FailureCause.WORK) -> None:
        self.reason, self.cause = reason, cause
        self._move(PhaseState.FAILED)

    def do(self, doing: Doing | None) -> None:
        self.doing = doing
        self.on_observed()

    def await_weights(self, is_awaiting: bool) -> None:
        self.is_awaiting_weights = is_awaiting
        self.on_observed()

    def known(self) -> KnownPhase:
        return KnownPhase(self.order.phase_id, self.order.fence, self.key, self.state, self.is_abandoned)

    def report(self) -> PhaseReport:
        has_engines = self.order.role is Role.ROLLOUT and not self.is_over
        return PhaseReport(
            phase_id=self.order.phase_id,
            fence=self.order.fence,
            state=self.state,
            reason=self.reason,
            cause=self.cause,
            endpoints=self.list_engines() if has_engines else None,
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
            num_engines=max(1, sum(bool(engine.endpoint) for engine in self.list_engines())),
        )

    def _move(self, target: PhaseState) -> None:
        PHASE_MOVES.check(self.state, target)
        self.state = target
        self.doing = None
        if self.is_over:  # its engines may work for another phase from now on
            self.list_engines, self.count_in_flight = list, int
        if target is PhaseState.DRAINING:
            self.on_observed()  # the control plane ordered it; a heartbeat now would delay the one about the end
        else:
            self.on_moved()
