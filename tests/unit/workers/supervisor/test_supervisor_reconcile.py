"""Reconciliation as a table: orders and warm_processes against what runs."""

from typing import Any
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


def order(
    number: int, fence: int, role: Role = Role.ROLLOUT, *, job_id: UUID = JOB, is_draining: bool = False
) -> PhaseOrder:
    return PhaseOrder(
        phase_id=UUID(int=number),
        fence=fence,
        role=role,
        job_id=job_id,
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
        fences={None: highest_fence},
    )
    assert actions == expected


def test_a_child_without_room_is_not_started_ahead_but_the_next_one_is() -> None:
    given: dict[str, Any] = {"warm_processes": [ENGINE, TRAINER], "phases": [], "children": [], "fences": {}}
    assert reconcile(orders=[], postponed={ROLLOUT}, **given) == [StartChild(TRAINER)]
    assert reconcile(orders=[], postponed={ROLLOUT, TRAIN}, **given) == []
    ordered = order(1, 5)
    assert reconcile(orders=[ordered], postponed={ROLLOUT}, **given) == [BeginPhase(ordered)], "it makes room"


OTHER = UUID(int=3)
AGENTS, OTHER_AGENTS = ChildKey(JOB, Role.AGENT), ChildKey(OTHER, Role.AGENT)
RUNNERS = [warm_process(Role.AGENT), warm_process(Role.AGENT, OTHER)]
RUNNING = KnownPhase(UUID(int=1), 5, AGENTS, PhaseState.ACTIVE)


def of_agents(
    orders: list[PhaseOrder], phases: list[KnownPhase], fences: dict[UUID | None, int]
) -> list[Action]:
    children = [KnownChild(AGENTS, is_loading=False), KnownChild(OTHER_AGENTS, is_loading=False)]
    return reconcile(
        orders=orders,
        warm_processes=[*RUNNERS, ENGINE],
        phases=phases,
        children=[*children, IDLE_CHILD],
        fences=fences,
    )


def test_agents_of_several_jobs_and_an_engine_begin_together() -> None:
    orders = [order(3, 7), order(1, 5, Role.AGENT), order(2, 6, Role.AGENT, job_id=OTHER)]
    assert of_agents(orders, [], {}) == [BeginPhase(orders[1]), BeginPhase(orders[2]), BeginPhase(orders[0])]


def test_an_engine_waits_for_the_one_before_but_not_for_agents() -> None:
    """And agents that were leased after it begin before it, without making its order an old one."""
    engine = phase(4, 4, PhaseState.DRAINING)
    orders = [
        order(4, 4, is_draining=True),
        order(1, 5, Role.AGENT),
        order(3, 6),
        order(2, 7, Role.AGENT, job_id=OTHER),
    ]
    began = of_agents(orders, [engine, RUNNING], {None: 4, JOB: 5})
    assert [action for action in began if isinstance(action, BeginPhase)] == [BeginPhase(orders[3])]
    ended = phase(4, 4, PhaseState.ENDED)
    others = KnownPhase(UUID(int=2), 7, OTHER_AGENTS, PhaseState.ACTIVE)
    then = of_agents(orders, [ended, RUNNING, others], {None: 4, JOB: 5, OTHER: 7})
    assert [action for action in then if isinstance(action, BeginPhase)] == [BeginPhase(orders[2])]


def test_agents_that_drain_leave_those_of_another_job_alone() -> None:
    others = KnownPhase(UUID(int=2), 6, OTHER_AGENTS, PhaseState.ACTIVE)
    orders = [order(1, 5, Role.AGENT, is_draining=True), order(2, 6, Role.AGENT, job_id=OTHER)]
    assert of_agents(orders, [RUNNING, others], {JOB: 5, OTHER: 6}) == [
        RefreshPhase(orders[0]), DrainPhase(UUID(int=1)), RefreshPhase(orders[1]),
    ]  # fmt: skip


def test_new_agents_of_a_job_wait_until_its_old_ones_are_over() -> None:
    newer = order(2, 6, Role.AGENT)
    assert of_agents([order(1, 5, Role.AGENT), newer], [RUNNING], {JOB: 5}) == [
        RefreshPhase(order(1, 5, Role.AGENT)), DrainPhase(UUID(int=1)),
    ]  # fmt: skip
    assert of_agents([newer], [], {JOB: 6}) == [], "an old fence changes nothing"
