"""Decides by which actions the machine gets from what is running to what is ordered.

It takes the orders and warm processes of the last answer and what is known here about phases and children. It returns a
list of actions; the same input gives the same list, which is empty if there is nothing to do.
Invariants: at most one phase is live; an ended phase is reported until the orders no longer name it; an order starts
only if its fence is above every fence begun before.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow_workers.phases.running import ChildKey, KnownChild, KnownPhase


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
    highest_fence: int,
) -> list[Action]:
    newest = _newest_order(orders, phases, highest_fence)
    actions = _on_known_phases(orders, phases, newest)
    actions += _on_strange_orders(orders, phases)
    is_vacant = all(phase.is_over for phase in phases)
    if newest is not None and is_vacant:
        actions.append(BeginPhase(newest))
    needed = {phase.key for phase in phases if not phase.is_over}
    if newest is not None:
        needed.add(ChildKey(newest.job_id, newest.role))
    return actions + _on_children(warm_processes, children, needed, may_start=newest is None or not is_vacant)


def _newest_order(
    orders: Sequence[PhaseOrder], phases: Collection[KnownPhase], highest_fence: int
) -> PhaseOrder | None:
    known = {phase.phase_id for phase in phases}
    fresh = [
        order
        for order in orders
        if order.fence > highest_fence and order.phase_id not in known and not order.is_draining
    ]
    return max(fresh, key=lambda order: order.fence, default=None)


def _on_known_phases(
    orders: Sequence[PhaseOrder], phases: Collection[KnownPhase], newest: PhaseOrder | None
) -> list[Action]:
    by_id = {order.phase_id: order for order in orders}
    actions: list[Action] = []
    for phase in phases:
        order = by_id.get(phase.phase_id)
        if order is None or order.fence > phase.fence:
            actions += _on_unordered(phase)
        elif order.fence == phase.fence and not phase.is_over:
            actions.append(RefreshPhase(order))
            is_superseded = newest is not None and newest.fence > phase.fence
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
        missing = [warm_process for key, warm_process in listed.items() if key not in running]
        actions += [StartChild(warm_process) for warm_process in missing[:1]]
    return actions
