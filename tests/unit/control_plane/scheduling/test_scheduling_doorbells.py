"""An engine that serves an older version than desired gets a doorbell, once for each version."""

from uuid import UUID

from seamlessflow.control_plane.scheduling.leading.doorbells import EnginesBehind
from seamlessflow.control_plane.scheduling.services.leases import WakeUp
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.snapshot import MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

PHASE = UUID(int=7)
WAKE_UP = WakeUp(machine="alpha", phase_id=PHASE, fence=3)


def engine(*, desired: int, served: int | None, state: PhaseState = PhaseState.ACTIVE) -> Snapshot:
    phase = PhaseView(
        id=PHASE,
        job_id=UUID(int=1),
        role=Role.ROLLOUT,
        state=state,
        fence=3,
        desired_version=desired,
        served_version=served,
    )
    machine = MachineView(id=UUID(int=2), name="alpha", tags=frozenset({"rollout"}), phase=phase)
    return Snapshot(machines=(machine,), jobs=())


def test_an_engine_that_is_behind_gets_one_doorbell_for_each_version() -> None:
    behind = EnginesBehind()
    assert behind.wake_ups(engine(desired=1, served=1)) == []
    assert behind.wake_ups(engine(desired=2, served=1)) == [WAKE_UP]
    assert behind.wake_ups(engine(desired=2, served=1)) == []
    assert behind.wake_ups(engine(desired=3, served=1)) == [WAKE_UP]
    assert behind.wake_ups(engine(desired=3, served=3)) == []
    assert behind.wake_ups(engine(desired=4, served=3)) == [WAKE_UP]


def test_engines_that_start_or_drain_learn_of_versions_from_their_orders() -> None:
    behind = EnginesBehind()
    assert behind.wake_ups(engine(desired=2, served=None, state=PhaseState.STARTING)) == []
    assert behind.wake_ups(engine(desired=2, served=1, state=PhaseState.DRAINING)) == []
    assert behind.wake_ups(engine(desired=2, served=1)) == [WAKE_UP]


def test_phases_that_are_gone_are_forgotten() -> None:
    behind = EnginesBehind()
    assert behind.wake_ups(engine(desired=2, served=1)) == [WAKE_UP]
    assert behind.wake_ups(Snapshot(machines=(), jobs=())) == []
    assert behind.wake_ups(engine(desired=2, served=1)) == [WAKE_UP]
