"""Decides by which actions the machine gets from its processes to its orders.

It takes the orders and warm processes of the last answer and the phases and children that are known here. It returns a
list of actions; the same input gives the same list, which is empty if there is nothing to do. Invariants: at most one
live phase rolls out or trains, and a job has at most one live agent phase; an ended phase is reported until the orders
no longer name it; an order starts only if its fence is above every fence begun before in its scope. The scope is the
machine for phases that roll out or train, and the job for agents: those of different jobs do not wait for each other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.running import ChildKey, KnownChild, KnownPhase

FenceScope = UUID | None  # whose agents; None: the phase that rolls out or trains


@dataclass(frozen=True, slots=True)
class BeginPhase:
    order: PhaseOrder


@dataclass(frozen=True, slots=True)
class RefusePhase:
    """Answer `ended` to an order to drain a phase that does not run here, because the supervisor was restarted."""

    order: PhaseOrder


@dataclass(frozen=True, slots=True)
class RefreshPhase:
    """Refresh a phase whose order was repeated, with newer weights or a renewed credential."""

    order: PhaseOrder


@dataclass(frozen=True, slots=True)
class DrainPhase:
    phase_id: UUID


@dataclass(frozen=True, slots=True)
class AbandonPhase:
    """Stop a phase that is no longer ordered."""

    phase_id: UUID


@dataclass(frozen=True, slots=True)
class ForgetPhase:
    phase_id: UUID


@dataclass(frozen=True, slots=True)
class StartChild:
    warm_process: WarmProcess


@dataclass(frozen=True, slots=True)
class StopChild:
    key: ChildKey


Action = (
    BeginPhase | RefusePhase | RefreshPhase | DrainPhase | AbandonPhase | ForgetPhase | StartChild | StopChild
)


def reconcile(
    *,
    orders: Sequence[PhaseOrder],
    warm_processes: Sequence[WarmProcess],
    phases: Collection[KnownPhase],
    children: Collection[KnownChild],
    fences: Mapping[FenceScope, int],
    postponed: Collection[ChildKey] = (),
) -> list[Action]:
    """`fences`: the highest fence that began in each scope. `postponed`: children that are not started ahead of time,
    because the devices have too little memory for them now."""
    newest = _newest_orders(orders, phases, fences)
    actions = _on_known_phases(orders, phases, newest)
    actions += _on_strange_orders(orders, phases)
    taken = {scope_of(phase.key) for phase in phases if not phase.is_over}
    beginning = [order for scope, order in newest.items() if scope not in taken]
    actions += [BeginPhase(order) for order in beginning]
    needed = {phase.key for phase in phases if not phase.is_over}
    needed |= {key_of(order) for order in newest.values()}
    return actions + _on_children(warm_processes, children, needed, postponed, may_start=not beginning)


def key_of(order: PhaseOrder) -> ChildKey:
    return ChildKey(order.job_id, order.role)


def scope_of(key: ChildKey) -> FenceScope:
    return key.job_id if key.role is Role.AGENT else None


def _newest_orders(
    orders: Sequence[PhaseOrder], phases: Collection[KnownPhase], fences: Mapping[FenceScope, int]
) -> dict[FenceScope, PhaseOrder]:
    """Return the newest order of each scope that has not begun, by rising fences."""
    known = {phase.phase_id for phase in phases}
    newest: dict[FenceScope, PhaseOrder] = {}
    for order in sorted(orders, key=lambda order: order.fence):
        scope = scope_of(key_of(order))
        if order.fence > fences.get(scope, 0) and order.phase_id not in known and not order.is_draining:
            newest[scope] = order
    return newest


def _on_known_phases(
    orders: Sequence[PhaseOrder], phases: Collection[KnownPhase], newest: Mapping[FenceScope, PhaseOrder]
) -> list[Action]:
    by_id = {order.phase_id: order for order in orders}
    actions: list[Action] = []
    for phase in phases:
        order = by_id.get(phase.phase_id)
        if order is None or order.fence > phase.fence:
            actions += _on_unordered(phase)
        elif order.fence == phase.fence and not phase.is_over:
            actions.append(RefreshPhase(order))
            follower = newest.get(scope_of(phase.key))
            is_superseded = follower is not None and follower.fence > phase.fence
            if (order.is_draining or is_superseded) and phase.state is not PhaseState.DRAINING:
                actions.append(DrainPhase(phase.phase_id))
    return actions


def _on_unordered(phase: KnownPhase) -> list[Action]:
    if phase.is_over:
        return [ForgetPhase(phase.phase_id)]
    return [] if phase.is_abandoned else [AbandonPhase(phase.phase_id)]


def _on_strange_orders(orders: Sequence[PhaseOrder], phases: Collection[KnownPhase]) -> list[Action]:
    known = {phase.phase_id for phase in phases}
    return [RefusePhase(order) for order in orders if order.is_draining and order.phase_id not in known]


def _on_children(
    warm_processes: Sequence[WarmProcess],
    children: Collection[KnownChild],
    needed: set[ChildKey],
    postponed: Collection[ChildKey],
    *,
    may_start: bool,
) -> list[Action]:
    listed = {
        ChildKey(warm_process.job_id, warm_process.role): warm_process for warm_process in warm_processes
    }
    running = {child.key for child in children}
    actions: list[Action] = [StopChild(key) for key in running - listed.keys() - needed]
    # One start at a time, ordered ones first, because loading a model takes the whole machine.
    if may_start and not any(child.is_loading for child in children):
        missing = [
            warm_process
            for key, warm_process in listed.items()
            if key not in running and key not in postponed
        ]
        actions += [StartChild(warm_process) for warm_process in missing[:1]]
    return actions
