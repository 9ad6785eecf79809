"""A supervisor of two devices: the loss of one costs only that one."""

from pathlib import Path

import pytest

from seamlessflow.core.types.tags import Role
from seamlessflow_workers.process.device_environment import trainer_devices
from seamlessflow_workers.supervisor import device_watch
from seamlessflow_workers.supervisor.nvml import DeviceHealth
from tests.fakes.fake_control_plane import FakeControlPlane, until
from tests.fixtures.machine_devices import two_core_devices
from tests.fixtures.repository import ROOT
from tests.integration.workers.supervisor.test_supervisor_machine import Stage, staged


async def test_a_lost_device_is_left_out_of_the_next_phases_until_a_person_releases_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # where the children find tests.fakes
    monkeypatch.setattr(device_watch, "PROBE_EVERY_S", 0.02)
    devices = two_core_devices()
    health = {device.id: DeviceHealth() for device in devices}
    async with staged(tmp_path, devices=devices, probe=lambda _: dict(health)) as stage:
        plane = stage.plane
        plane.reside(Role.TRAIN)
        await until(lambda: len(devices_of_trainer(stage)) == 2, what="the trainer has both")

        health["cpu:lost"] = DeviceHealth("it is gone")
        await until(lambda: devices_of_trainer(stage) == [devices[0].id], what="the next one has the other")
        await until(lambda: problems(plane) == [{}, {"cpu:lost": "it is gone"}], what="the loss is told")

        plane.released_devices = {"cpu:lost": "it is gone"}
        health["cpu:lost"] = DeviceHealth()
        await until(lambda: len(devices_of_trainer(stage)) == 2, what="it is used again")
        await until(
            lambda: problems(plane) == [{}, {"cpu:lost": "it is gone"}, {}], what="the return is told"
        )


def devices_of_trainer(stage: Stage) -> list[str]:
    """Return the devices that the trainer was started with, sorted; none while there is no trainer."""
    if (pid := stage.pid(Role.TRAIN)) is None:
        return []
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:  # it has just ended
        return []
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return sorted(device.id for device in trainer_devices(environment))


def problems(plane: FakeControlPlane) -> list[dict[str, str]]:
    """Return what the machine told of cordoned devices, in order; each time it tells anything of its hardware."""
    return [beat.capabilities.device_problems for beat in plane.heartbeats if beat.capabilities is not None]
