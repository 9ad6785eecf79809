"""How often machines of a fleet send heartbeats, and how long each may be silent."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.blame.health import Patience, phases_to_fail, suspicion_s
from seamlessflow.core.scheduling.heartbeats import (
    HEARTBEAT_LIMIT_S,
    MAX_BEATS_PER_S,
    heartbeat_interval_s,
    unheard_limit_s,
)
from seamlessflow.core.scheduling.quiet import quiet_s
from seamlessflow.core.scheduling.snapshot import MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role


@pytest.mark.parametrize(
    "num_machines, interval_s, limit_s",
    [(0, 1.0, 15.0), (200, 1.0, 15.0), (400, 2.0, 15.0), (1000, 5.0, 25.0), (10_000, 50.0, 250.0)],
)
def test_machines_of_a_larger_fleet_are_heard_less_often_and_may_be_silent_for_longer(
    num_machines: int, interval_s: float, limit_s: float
) -> None:
    assert heartbeat_interval_s(num_machines) == interval_s
    assert unheard_limit_s(interval_s) == limit_s


@given(st.integers(1, 1_000_000))
def test_no_fleet_sends_more_than_the_bound_and_each_machine_may_lose_four_heartbeats(num: int) -> None:
    interval_s = heartbeat_interval_s(num)
    assert num / interval_s <= MAX_BEATS_PER_S * (1 + 1e-9)
    assert unheard_limit_s(interval_s) >= max(HEARTBEAT_LIMIT_S, 5 * interval_s)


def machine(number: int, *, unheard_s: float, limit_s: float) -> MachineView:
    phase = PhaseView(
        id=UUID(int=100 + number), job_id=UUID(int=1), role=Role.ROLLOUT, state=PhaseState.ACTIVE, fence=1
    )
    return MachineView(
        id=UUID(int=number), name=f"m{number}", tags=frozenset({"rollout"}), is_healthy=unheard_s <= limit_s,
        unheard_s=unheard_s, unheard_limit_s=limit_s, phase=phase,
    )  # fmt: skip


def test_patience_lasts_for_the_longest_limit_of_any_machine() -> None:
    patience = Patience(since_s=0.0)
    patience.note([machine(1, unheard_s=1.0, limit_s=15.0), machine(2, unheard_s=1.0, limit_s=25.0)], 0.0)
    assert not patience.is_over(25.0)
    assert patience.is_over(25.1)


def test_most_machines_are_not_given_up_before_their_own_limit_has_passed_many_times() -> None:
    """A fleet whose machines may be silent for 250 s would otherwise not be suspected to be cut off at all."""
    heard, silent = machine(1, unheard_s=1.0, limit_s=250.0), machine(2, unheard_s=300.0, limit_s=250.0)
    machines = [heard, silent, replace(silent, id=UUID(int=3), name="m3")]
    assert list(phases_to_fail(machines, may_evict=True)) == []
    assert suspicion_s(silent) == 2000.0
    assert quiet_s(Snapshot(machines=tuple(machines), jobs=())) <= 1700.0
    given_up = [replace(one, unheard_s=2000.1) for one in machines[1:]]
    assert len(list(phases_to_fail([heard, *given_up], may_evict=True))) == 2
