"""Several engines in one rollout phase: each on its own device, lost and started again alone."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import EngineReport, PhaseOrder, PhaseReport
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.supervisor import device_watch
from seamlessflow_workers.supervisor.nvml import DeviceHealth
from tests.fakes.fake_control_plane import until, weights_in
from tests.fakes.fake_engine import next_token
from tests.fixtures.machine_devices import two_core_devices
from tests.fixtures.repository import ROOT
from tests.integration.workers.supervisor.test_supervisor_machine import PROMPT, Stage, staged


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.chdir(ROOT)  # where the children find tests.fakes
    async with staged(tmp_path, num_devices=2) as made:
        yield made


def engines_of(report: PhaseReport) -> list[EngineReport]:
    assert report.endpoints is not None
    return report.endpoints


async def serving(stage: Stage, order: PhaseOrder, *, version: int) -> list[EngineReport]:
    """Wait until all engines of the phase serve the version."""

    def are_up() -> bool:
        if not (reports := stage.plane.reports.get(order.phase_id)):
            return False
        return [engine.served_version for engine in reports[-1].endpoints or ()] == [version] * 2

    await until(are_up, what=f"both engines serve version {version}")
    return engines_of(stage.plane.last(order))


async def ask(
    stage: Stage, engine: EngineReport, order: PhaseOrder, *, version: int, num_tokens: int = 3
) -> tuple[int, bytes]:
    report = msgspec.structs.replace(stage.plane.last(order), endpoints=[engine])
    return await stage.generate(report, order, num_tokens=num_tokens, version=version)


def pids(stage: Stage) -> tuple[int, ...]:
    (child,) = stage.machine.children.values()
    return child.pids


async def test_engines_of_a_phase_serve_update_and_hand_over_together(stage: Stage) -> None:
    plane = stage.plane
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    engines = await serving(stage, order, version=0)
    assert [engine.replica for engine in engines] == [0, 1]
    assert len({engine.endpoint for engine in engines}) == 2
    cores = [os.sched_getaffinity(pid) for pid in pids(stage)]
    assert cores == [set(device.cores) for device in stage.devices]

    running = [
        asyncio.create_task(ask(stage, engine, order, version=0, num_tokens=500)) for engine in engines
    ]
    await until(lambda: plane.last(order).num_in_flight == 2, what="both are in flight")
    assert [engine.num_in_flight for engine in engines_of(plane.last(order))] == [1, 1]
    plane.change(order, weights=weights_in(stage.folder, 1))
    stage.machine.link.wake()
    await serving(stage, order, version=1)
    for status, body in await asyncio.gather(*running):
        spans = json.loads(body)["choices"][0]["weight_versions"]
        assert (status, [span["version"] for span in spans]) == (200, ["0", "1"])

    running = [
        asyncio.create_task(ask(stage, engine, order, version=1, num_tokens=4000)) for engine in engines
    ]
    await until(lambda: plane.last(order).num_in_flight == 2, what="both are in flight")
    plane.change(order, is_draining=True)
    for status, body in await asyncio.gather(*running):
        assert (status, json.loads(body)["choices"][0]["finish_reason"]) == (200, "abort")
    ended = await plane.until_state(order, PhaseState.ENDED)
    assert ended.endpoints is None
    before = pids(stage)

    again = plane.order(Role.ROLLOUT, weights=weights_in(stage.folder, 2))
    await serving(stage, again, version=2)
    assert pids(stage) == before, "they stayed warm"


async def test_a_killed_engine_comes_back_alone_while_the_other_goes_on(stage: Stage) -> None:
    plane = stage.plane
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT, weights=weights_in(stage.folder, 1))
    lost, fellow = await serving(stage, order, version=1)
    long = asyncio.create_task(ask(stage, fellow, order, version=1, num_tokens=3000))
    await until(lambda: plane.last(order).num_in_flight == 1, what="it is in flight")
    killed, kept = pids(stage)
    os.kill(killed, signal.SIGKILL)

    await until(lambda: engines_of(plane.last(order))[0].problem != "", what="the loss is reported")
    told = plane.last(order)
    assert told.state is PhaseState.ACTIVE
    assert told.served_version == 1
    assert "engine 0 was killed by SIGKILL; last line: ready" in engines_of(told)[0].problem
    assert (await ask(stage, fellow, order, version=1))[0] == 200

    back, same = await serving(stage, order, version=1)
    assert (back.problem, same.endpoint) == ("", fellow.endpoint)
    assert back.endpoint != lost.endpoint
    status, body = await ask(stage, back, order, version=1)
    assert json.loads(body)["choices"][0]["token_ids"][0] == next_token(PROMPT, version="1")
    assert pids(stage)[1] == kept
    status, body = await long
    assert (status, len(json.loads(body)["choices"][0]["token_ids"])) == (200, 3000), (
        "its fellow never noticed"
    )
    logs = plane.logs[order.phase_id].decode()
    assert "[engine 0] fake engine starts with version 1\n" in logs
    assert "[engine 1] fake engine starts with version 1\n" in logs


async def test_an_engine_whose_device_is_cordoned_stays_lost_while_the_other_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(device_watch, "PROBE_EVERY_S", 0.02)
    devices = two_core_devices()
    health = {device.id: DeviceHealth() for device in devices}
    async with staged(tmp_path, devices=devices, probe=lambda _: dict(health)) as stage:
        plane = stage.plane
        plane.reside(Role.ROLLOUT)
        order = plane.order(Role.ROLLOUT)
        fellow, _ = await serving(stage, order, version=0)
        health["cpu:lost"] = DeviceHealth("it is gone")
        await until(lambda: "device cpu:lost is cordoned" in caplog.text, what="the device is cordoned")
        kept, on_lost = pids(stage)
        os.kill(on_lost, signal.SIGKILL)

        await until(lambda: "engine 1 is not started again" in caplog.text, what="it stays lost")
        assert plane.last(order).state is PhaseState.ACTIVE
        assert (await ask(stage, fellow, order, version=0))[0] == 200
        assert pids(stage) == (kept,)

        os.kill(kept, signal.SIGKILL)
        assert "killed by SIGKILL" in (await plane.until_state(order, PhaseState.FAILED)).reason
        again = plane.order(Role.ROLLOUT)
        await plane.until_state(again, PhaseState.ACTIVE)
        assert [engine.replica for engine in engines_of(plane.last(again))] == [0], (
            "on the device that is left"
        )


async def test_the_phase_fails_with_its_last_engine(stage: Stage) -> None:
    plane = stage.plane
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    await serving(stage, order, version=0)
    for pid in pids(stage):
        os.kill(pid, signal.SIGKILL)
    failed = await plane.until_state(order, PhaseState.FAILED)
    assert "was killed by SIGKILL" in failed.reason
    again = plane.order(Role.ROLLOUT)
    await serving(stage, again, version=0)
