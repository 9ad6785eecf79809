"""The processes of a machine share the memory of its devices: a device that counts bytes never has to refuse."""

import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import PhaseOrder
from seamlessflow.core.types.tags import Role
from tests.fakes.counting_device import VARIABLE, CountingDevice
from tests.fakes.fake_control_plane import FakeControlPlane, until, weights_in
from tests.fixtures.machine_devices import core_device
from tests.fixtures.repository import ROOT
from tests.integration.workers.supervisor.test_supervisor_machine import Stage, staged
from tests.integration.workers.supervisor.test_supervisor_replicas import serving

GIB = 1 << 30
CARD_BYTES = 80 * GIB
NUM_BEATS = 4  # after which the machine would have acted on an answer


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingDevice:
    monkeypatch.chdir(ROOT)  # where the children find tests.fakes
    monkeypatch.setenv(VARIABLE, str(tmp_path / "card"))
    return CountingDevice.create(tmp_path / "card", total_bytes=CARD_BYTES)


@pytest.fixture
async def stage(tmp_path: Path, card: CountingDevice) -> AsyncIterator[Stage]:
    core = min(os.sched_getaffinity(0))
    device = msgspec.structs.replace(core_device(core), memory_bytes=CARD_BYTES)
    async with staged(tmp_path, devices=(device,)) as made:
        yield made


def sizes(monkeypatch: pytest.MonkeyPatch, *, engine: tuple[int, int], trainer: tuple[int, int]) -> None:
    """Say what both use awake and keep asleep, in GiB."""
    for name, (awake, asleep) in {"ENGINE": engine, "TRAINER": trainer}.items():
        monkeypatch.setenv(f"FAKE_{name}_BYTES", f"{awake * GIB},{asleep * GIB}")


def reside(plane: FakeControlPlane, *, engine: int, trainer: int) -> None:
    """Keep both warm, with what they need by estimate, in GiB."""
    plane.reside(Role.ROLLOUT, device_bytes=engine * GIB)
    plane.reside(Role.TRAIN, device_bytes=trainer * GIB)


async def hand_over(plane: FakeControlPlane, order: PhaseOrder) -> None:
    plane.change(order, is_draining=True)
    await plane.until_state(order, PhaseState.ENDED)


async def beats(plane: FakeControlPlane, num: int = NUM_BEATS) -> None:
    before = len(plane.heartbeats)
    await until(lambda: len(plane.heartbeats) >= before + num, what=f"{num} heartbeats")


async def test_a_trainer_is_not_loaded_beside_an_engine_that_fills_the_card(
    stage: Stage, card: CountingDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sizes(monkeypatch, engine=(60, 4), trainer=(40, 2))
    plane = stage.plane
    reside(plane, engine=60, trainer=40)
    order = plane.order(Role.ROLLOUT)
    await plane.until_state(order, PhaseState.ACTIVE)
    await beats(plane)
    assert stage.pid(Role.TRAIN) is None
    said = [
        record.getMessage()
        for record in caplog.records
        if "when there is enough memory" in record.getMessage()
    ]
    assert len(said) == 1, "it is said once"
    assert "needs 40.0 GiB beside 60.0 GiB that the engine of job_" in said[0]
    assert said[0].endswith(" uses, but a device has 80.0 GiB; it is started when there is enough memory")

    await hand_over(plane, order)
    await until(
        lambda: stage.pid(Role.TRAIN) is not None, what="the trainer is started while the engine sleeps"
    )
    engine, trainer = stage.pid(Role.ROLLOUT), stage.pid(Role.TRAIN)
    train = plane.order(Role.TRAIN)
    await plane.until_state(train, PhaseState.ACTIVE)
    await until(lambda: set(card.held().values()) == {4 * GIB, 40 * GIB}, what="it has its model back")
    await hand_over(plane, train)
    again = plane.order(Role.ROLLOUT, weights=weights_in(stage.folder, 1))
    assert (await plane.until_state(again, PhaseState.ACTIVE)).served_version == 1
    assert set(card.held().values()) == {60 * GIB, 2 * GIB}
    assert (stage.pid(Role.ROLLOUT), stage.pid(Role.TRAIN)) == (engine, trainer), "both stayed warm"
    assert card.refusals() == []


async def test_an_engine_that_keeps_too_much_is_ended_for_the_trainer_and_started_again(
    stage: Stage, card: CountingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes(monkeypatch, engine=(60, 50), trainer=(40, 2))
    plane = stage.plane
    reside(plane, engine=60, trainer=40)
    order = plane.order(Role.ROLLOUT)
    await plane.until_state(order, PhaseState.ACTIVE)
    await hand_over(plane, order)
    train = plane.order(Role.TRAIN)
    await plane.until_state(train, PhaseState.ACTIVE)
    await until(lambda: list(card.held().values()) == [40 * GIB], what="it is alone on the card")
    await beats(plane)
    assert stage.pid(Role.ROLLOUT) is None, "it is not started ahead beside the trainer"
    trainer = stage.pid(Role.TRAIN)
    await hand_over(plane, train)
    again = plane.order(Role.ROLLOUT)
    await plane.until_state(again, PhaseState.ACTIVE)
    assert stage.pid(Role.TRAIN) == trainer
    assert card.refusals() == []


async def test_what_a_trainer_really_used_counts_from_then_on(
    stage: Stage, card: CountingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its estimate was too high to let an engine load beside it."""
    sizes(monkeypatch, engine=(30, 4), trainer=(40, 2))
    plane = stage.plane
    plane.reside(Role.TRAIN, device_bytes=20 * GIB, usual_device_bytes=60 * GIB)
    train = plane.order(Role.TRAIN)
    await plane.until_state(train, PhaseState.ACTIVE)
    plane.reside(Role.ROLLOUT, device_bytes=30 * GIB)
    await beats(plane)
    assert stage.pid(Role.ROLLOUT) is None
    engine = plane.warm_processes.pop()
    await hand_over(plane, train)
    train = plane.order(Role.TRAIN)
    await plane.until_state(train, PhaseState.ACTIVE)
    plane.warm_processes.append(engine)
    await until(lambda: stage.pid(Role.ROLLOUT) is not None, what="the engine is started ahead")
    await until(lambda: set(card.held().values()) == {4 * GIB, 40 * GIB}, what="the engine sleeps beside it")
    assert card.refusals() == []


async def test_a_trainer_that_failed_is_not_loaded_again_beside_the_engine(
    stage: Stage, card: CountingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes(monkeypatch, engine=(60, 4), trainer=(40, 2))
    plane = stage.plane
    reside(plane, engine=60, trainer=40)
    train = plane.order(Role.TRAIN)
    await plane.until_state(train, PhaseState.ACTIVE)
    trainer = stage.pid(Role.TRAIN)
    assert trainer is not None
    os.kill(trainer, signal.SIGKILL)
    await plane.until_state(train, PhaseState.FAILED)
    order = plane.order(Role.ROLLOUT)
    await plane.until_state(order, PhaseState.ACTIVE)
    await beats(plane)
    assert stage.pid(Role.TRAIN) is None
    assert card.refusals() == []


async def test_an_engine_lost_while_it_sleeps_waits_until_the_trainer_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    async with staged(tmp_path, num_devices=2) as stage:  # of 1 GiB each
        plane = stage.plane
        plane.reside(Role.ROLLOUT, device_bytes=GIB * 3 // 4)
        plane.reside(Role.TRAIN, device_bytes=GIB * 3 // 4)
        order = plane.order(Role.ROLLOUT)
        await serving(stage, order, version=0)
        engines = next(child for key, child in stage.machine.children.items() if key.role is Role.ROLLOUT)
        await hand_over(plane, order)
        train = plane.order(Role.TRAIN)
        await plane.until_state(train, PhaseState.ACTIVE)
        lost, kept = engines.pids
        os.kill(lost, signal.SIGKILL)
        await until(lambda: engines.pids == (kept,), what="one engine is lost")
        await beats(plane, 6)  # its restart would take less
        assert engines.pids == (kept,)
        await hand_over(plane, train)
        again = plane.order(Role.ROLLOUT)
        await plane.until_state(again, PhaseState.ACTIVE)
        await until(lambda: len(engines.pids) == 2, what="it is back")
        assert kept in engines.pids
