"""Who gets the memory of a machine's devices, and who is ended for it."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import WarmProcess, WeightsReference
from seamlessflow.core.sizing.bookings import Wanted
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.device_budget import DeviceBudget, wanted_of
from seamlessflow_workers.phases.running import ChildKey, RunningPhase
from seamlessflow_workers.process.settings import ChildSettings
from tests.fixtures.machine_devices import GIB, core_device, gpu
from tests.unit.workers.supervisor.test_supervisor_reconcile import order, warm_process

OURS, THEIRS = UUID(int=1), UUID(int=9)
ENGINE, TRAINER = ChildKey(OURS, Role.ROLLOUT), ChildKey(OURS, Role.TRAIN)


def settings(device: str = "cuda", share: float = 0.9) -> ChildSettings:
    devices = (gpu(0), gpu(1)) if device == "cuda" else (core_device(0),)
    return ChildSettings(
        control_plane_url="",
        cores=frozenset({0}),
        device=device,
        devices=devices,
        engine_commands={},
        engines={},
        gpu_memory_fraction=share,
    )


@dataclass(eq=False)
class Child:
    """A child of a supervisor without a process."""

    key: ChildKey
    phase: RunningPhase | None = None
    is_leaving: bool = False
    num_looks: int = 0

    def stop(self) -> None:
        self.is_leaving = True

    def on_memory_freed(self) -> None:
        self.num_looks += 1


class Room:
    """GPUs of 80 GiB, and children on them."""

    def __init__(self) -> None:
        self.room = DeviceBudget(settings().devices)

    def sleeper(self, key: ChildKey, *, kept: int, needed: int = 1) -> Child:
        child = Child(key)
        self.room.enter(child, Wanted(needed * GIB))
        self.room.sleep(child, kept_bytes=kept * GIB)
        return child


def ordered(key: ChildKey) -> RunningPhase:
    return RunningPhase(
        order(1, 1, key.role, job_id=key.job_id), on_moved=lambda: None, on_observed=lambda: None
    )


def vllm(engine_args: dict[str, Any] | None = None) -> WarmProcess:
    made = warm_process(Role.ROLLOUT)
    made.spec["rollout"] = {"engine": "vllm", "engine_args": engine_args or {}}
    return made


def test_vllm_takes_what_is_left_on_a_gpu_unless_the_job_says_how_much() -> None:
    assert wanted_of(vllm(), settings()) == Wanted(0, share=0.9)
    assert wanted_of(vllm(), settings(share=0.3)) == Wanted(0, share=0.3)
    assert wanted_of(vllm({"gpu_memory_utilization": 0.5}), settings()) == Wanted(40 * GIB)
    assert wanted_of(vllm(), settings("cpu")) == Wanted(0)
    assert wanted_of(warm_process(Role.TRAIN), settings()) == Wanted(0)


def test_an_order_ends_the_cheapest_sleepers_that_suffice() -> None:
    made = Room()
    engine = made.sleeper(ENGINE, kept=10)
    their_engine = made.sleeper(ChildKey(THEIRS, Role.ROLLOUT), kept=20)
    their_trainer = made.sleeper(ChildKey(THEIRS, Role.TRAIN), kept=20)
    trainer = made.sleeper(TRAINER, kept=2, needed=50)
    assert not made.room.wake(trainer), "nobody waits for it, so nobody is ended"
    assert not any(one.is_leaving for one in (engine, their_engine, their_trainer))

    trainer.phase = ordered(TRAINER)
    assert not made.room.wake(trainer), "it waits until they are gone"
    assert [one.is_leaving for one in (engine, their_engine, their_trainer)] == [False, True, False]
    made.room.leave(their_engine)
    assert trainer.num_looks == 1, "it heard that one has left"
    assert made.room.wake(trainer)


def test_what_loads_ahead_is_ended_before_what_sleeps() -> None:
    made = Room()
    engine, trainer = made.sleeper(ENGINE, kept=10), made.sleeper(TRAINER, kept=2, needed=50)
    ahead = Child(ChildKey(THEIRS, Role.TRAIN))
    made.room.enter(ahead, Wanted(40 * GIB))
    trainer.phase = ordered(TRAINER)
    assert not made.room.wake(trainer)
    assert (engine.is_leaving, ahead.is_leaving) == (False, True)


def test_who_carries_out_a_phase_is_never_ended() -> None:
    made = Room()
    engine, trainer = Child(ENGINE, ordered(ENGINE)), made.sleeper(TRAINER, kept=2, needed=50)
    made.room.enter(engine, Wanted(60 * GIB))
    trainer.phase = ordered(TRAINER)
    assert not made.room.wake(trainer)
    assert not engine.is_leaving
    assert engine.phase is not None
    engine.phase.fail("it was killed")
    assert engine.phase.state is PhaseState.FAILED
    assert not made.room.wake(trainer)
    assert engine.is_leaving, "its phase is over"


def test_a_start_is_postponed_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    made = Room()
    engine = Child(ENGINE, ordered(ENGINE))
    made.room.enter(engine, Wanted(72 * GIB))
    missing = [
        WarmProcess(
            job_id=OURS,
            project_id=OURS,
            role=role,
            spec={},
            model_path="/m",
            weights=WeightsReference(version=0, uri="file:///m"),
            artifact_root="file:///a",
            gateway_url="",
            control_plane_url="",
            device_bytes=20 * GIB,
        )
        for role in Role
    ]
    for _ in range(2):
        assert made.room.postponed(missing, settings()) == {TRAINER}, (
            "the engine is there, agents need no device"
        )
    (said,) = (record.getMessage() for record in caplog.records)
    assert "needs 20.0 GiB beside 72.0 GiB that the engine of job_" in said
    made.room.sleep(engine, kept_bytes=4 * GIB)
    assert made.room.postponed(missing, settings()) == set()


def test_an_engine_that_leaves_no_room_for_a_sleeping_trainer_takes_less_the_next_time() -> None:
    made = Room()
    engine = Child(ENGINE)
    made.room.enter(engine, wanted_of(vllm(), settings()))
    assert made.room.share(engine) == pytest.approx(0.9)
    made.room.sleep(engine, kept_bytes=2 * GIB)
    assert not made.room.is_outgrown(engine)
    made.sleeper(TRAINER, kept=12)
    assert made.room.is_outgrown(engine)
    made.room.leave(engine)
    anew = Child(ENGINE, ordered(ENGINE))
    made.room.enter(anew, wanted_of(vllm(), settings()))
    assert made.room.share(anew) == pytest.approx(0.9 * 68 / 80)
    assert not made.room.is_outgrown(anew)


def test_agents_take_no_part() -> None:
    made, runner = Room(), Child(ChildKey(OURS, Role.AGENT))
    made.room.enter(runner, Wanted(0))
    assert made.room.wake(runner)
    made.room.sleep(runner)
    assert not made.room.is_outgrown(runner)
    made.room.leave(runner)
