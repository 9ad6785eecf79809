"""Reconciliation as a table: orders and warm_processes against what runs."""

from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess, WeightsReference
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.running import ChildKey, KnownChild, KnownPhase
from seamlessflow_workers.supervisor.reconcile import (
    AbandonPhase,
    Action,
    BeginPhase,
    DrainPhase,
    ForgetPhase,
    RefreshPhase,
    RefusePhase,
    StartChild,
    StopChild,
    reconcile,
)

JOB, PROJECT = UUID(int=1), UUID(int=2)
ROLLOUT, TRAIN = ChildKey(JOB, Role.ROLLOUT), ChildKey(JOB, Role.TRAIN)


def order(number: int, fence: int, role: Role = Role.ROLLOUT, *, is_draining: bool = False) -> PhaseOrder:
    return PhaseOrder(
        phase_id=UUID(int=number),
        fence=fence,
        role=role,
        job_id=JOB,
        project_id=PROJECT,
        is_draining=is_draining,
        credential="c",
        front_token="f",
        weights=WeightsReference(version=0, uri="file:///m"),
    )


def warm_process(role: Role, job_id: UUID = JOB) -> WarmProcess:
    return WarmProcess(
        job_id=job_id,
        project_id=PROJECT,
        role=role,
        spec={},
        model_path="/m",
        weights=WeightsReference(version=0, uri="file:///m"),
        artifact_root="file:///a",
        gateway_url="",
        control_plane_url="",
    )


def phase(
    number: int, fence: int, state: PhaseState, role: Role = Role.ROLLOUT, *, is_abandoned: bool = False
) -> KnownPhase:
    return KnownPhase(UUID(int=number), fence, ChildKey(JOB, role), state, is_abandoned)


IDLE_CHILD, IDLE_TRAINER = KnownChild(ROLLOUT, is_loading=False), KnownChild(TRAIN, is_loading=False)
ENGINE, TRAINER = warm_process(Role.ROLLOUT), warm_process(Role.TRAIN)

CASES: dict[str, tuple[list[PhaseOrder], list[WarmProcess], list[KnownPhase], list[KnownChild], int, list[Action]]] = {
    "nothing is ordered, nothing is done": ([], [], [], [], 0, []),
    "an order begins": ([order(1, 5)], [ENGINE], [], [], 4, [BeginPhase(order(1, 5))]),
    "an order with an old fence changes nothing": ([order(1, 4)], [ENGINE], [], [IDLE_CHILD], 4, []),
    "of two new orders the newer begins": (
        [order(1, 5), order(2, 6)], [ENGINE], [], [IDLE_CHILD], 4, [BeginPhase(order(2, 6))],
    ),
    "a repeated order refreshes": (
        [order(1, 5)], [ENGINE], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5, [RefreshPhase(order(1, 5))],
    ),
    "a repeated order with an older fence is ignored": (
        [order(1, 4)], [ENGINE], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5, [],
    ),
    "an order to drain drains": (
        [order(1, 5, is_draining=True)], [ENGINE], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5,
        [RefreshPhase(order(1, 5, is_draining=True)), DrainPhase(UUID(int=1))],
    ),
    "draining is asked for once": (
        [order(1, 5, is_draining=True)], [ENGINE], [phase(1, 5, PhaseState.DRAINING)], [IDLE_CHILD], 5,
        [RefreshPhase(order(1, 5, is_draining=True))],
    ),
    "an order to drain what does not run here is answered": (
        [order(1, 5, is_draining=True)], [], [], [], 0, [RefusePhase(order(1, 5, is_draining=True))],
    ),
    "an ended phase is reported while it is ordered": (
        [order(1, 5)], [ENGINE], [phase(1, 5, PhaseState.ENDED)], [IDLE_CHILD], 5, [],
    ),
    "an ended phase is forgotten when it is no longer ordered": (
        [], [ENGINE], [phase(1, 5, PhaseState.FAILED)], [IDLE_CHILD], 5, [ForgetPhase(UUID(int=1))],
    ),
    "a phase that is no longer ordered is abandoned": (
        [], [ENGINE], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5, [AbandonPhase(UUID(int=1))],
    ),
    "an abandoned phase is left to finish": (
        [], [ENGINE], [phase(1, 5, PhaseState.DRAINING, is_abandoned=True)], [IDLE_CHILD], 5, [],
    ),
    "a newer order waits until the older phase is over": (
        [order(1, 5), order(2, 6, Role.TRAIN)], [ENGINE, TRAINER], [phase(1, 5, PhaseState.ACTIVE)],
        [IDLE_CHILD, IDLE_TRAINER], 5, [RefreshPhase(order(1, 5)), DrainPhase(UUID(int=1))],
    ),
    "and begins in the same breath when it is": (
        [order(1, 5), order(2, 6, Role.TRAIN)], [ENGINE, TRAINER], [phase(1, 5, PhaseState.ENDED)],
        [IDLE_CHILD, IDLE_TRAINER], 5, [BeginPhase(order(2, 6, Role.TRAIN))],
    ),
    "warm_processes are started ahead, one at a time": ([], [ENGINE, TRAINER], [], [], 0, [StartChild(ENGINE)]),
    "no second start while one is loading": (
        [], [ENGINE, TRAINER], [], [KnownChild(ROLLOUT, is_loading=True)], 0, [],
    ),
    "the next warm_process follows": ([], [ENGINE, TRAINER], [], [IDLE_CHILD], 0, [StartChild(TRAINER)]),
    "an ordered child goes before one started ahead": (
        [order(1, 5, Role.TRAIN)], [ENGINE, TRAINER], [], [], 0, [BeginPhase(order(1, 5, Role.TRAIN))],
    ),
    "a child that is no longer listed is stopped": ([], [], [], [IDLE_CHILD], 0, [StopChild(ROLLOUT)]),
    "but not while its phase lives": (
        [order(1, 5)], [], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5, [RefreshPhase(order(1, 5))],
    ),
    "the same phase under a newer fence begins anew": (
        [order(1, 7)], [ENGINE], [phase(1, 5, PhaseState.ACTIVE)], [IDLE_CHILD], 5, [AbandonPhase(UUID(int=1))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_reconciliation(name: str) -> None:
    orders, warm_processes, phases, children, highest_fence, expected = CASES[name]
    actions = reconcile(
        orders=orders,
        warm_processes=warm_processes,
        phases=phases,
        children=children,
        highest_fence=highest_fence,
    )
    assert actions == expected
