"""A supervisor of two devices: the real trainer that it starts has a rank on each, and the loss of one costs only that
one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil
import pytest

from seamlessflow.core.types.tags import Role
from seamlessflow_workers.process.device_environment import trainer_devices
from seamlessflow_workers.supervisor import device_watch
from seamlessflow_workers.supervisor.nvml import DeviceHealth
from tests.fakes.fake_control_plane import TOKEN, FakeControlPlane, until
from tests.fixtures.machine_devices import core_device
from tests.fixtures.repository import ROOT
from tests.fixtures.trainer_harness import make_spec
from tests.integration.workers.supervisor.test_supervisor_machine import Stage, staged

LOADED_WITHIN_S = 120.0  # two interpreters import torch and DeepSpeed, one after the other


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_trainer_has_a_rank_on_each_device(trainer_model: Path, tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two devices need two cores")
    devices = [f"cpu:{cores[0]}", f"cpu:{cores[-1]}"]
    plane = await FakeControlPlane.start()
    plane.tags = ["train"]
    plane.reside(
        Role.TRAIN,
        model_path=str(trainer_model),
        artifact_root=(tmp_path / "artifacts").as_uri(),
        **make_spec(),
    )
    supervisor = supervisor_start(tmp_path, plane, devices)
    try:
        await until(
            lambda: cores_of_ranks(supervisor.pid) == [{cores[0]}, {cores[-1]}],
            what="both ranks have taken their seats",
            timeout_s=LOADED_WITHIN_S,
        )
        told = plane.heartbeats[0].capabilities
        assert told is not None
        assert [device.id for device in told.devices] == devices
        assert told.host == os.uname().nodename
    finally:
        supervisor.terminate()
        supervisor.wait(30)
        await plane.stop()


async def test_a_lost_device_is_left_out_of_the_next_phases_until_a_person_releases_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # where the children find tests.fakes
    monkeypatch.setattr(device_watch, "PROBE_EVERY_S", 0.02)
    cores = sorted(os.sched_getaffinity(0))
    devices = (core_device(cores[0]), msgspec.structs.replace(core_device(cores[-1]), id="cpu:lost"))
    health = {device.id: DeviceHealth() for device in devices}
    async with staged(tmp_path, devices=devices, probe=lambda _: dict(health)) as stage:
        plane = stage.plane
        plane.reside(Role.TRAIN)
        await until(lambda: len(devices_of_trainer(stage)) == 2, what="the trainer has both")

        health["cpu:lost"] = DeviceHealth("it is gone")
        await until(lambda: devices_of_trainer(stage) == [devices[0].id], what="the next one has the other")
        assert problems(plane) == [{}, {"cpu:lost": "it is gone"}]

        plane.released_devices = {"cpu:lost": "it is gone"}
        health["cpu:lost"] = DeviceHealth()
        await until(lambda: len(devices_of_trainer(stage)) == 2, what="it is used again")
        assert problems(plane) == [{}, {"cpu:lost": "it is gone"}, {}]


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


def supervisor_start(
    folder: Path, plane: FakeControlPlane, devices: Sequence[str]
) -> "subprocess.Popen[bytes]":
    (folder / "token").write_text(TOKEN)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", "alpha"),
            *("--control-plane-url", plane.url, "--token-file", str(folder / "token")),
            *("--home", str(folder), "--no-fork-server", "--devices", ",".join(devices)),
        ],
        env={key: value for key, value in os.environ.items() if not key.endswith("_URL")}
        | {"PYTHONPATH": f"{ROOT}/platform:{ROOT}/workers"},
    )


def cores_of_ranks(supervisor_pid: int) -> list[set[int]]:
    """Return where the trainer's ranks may run, the first one first; none that is only starting."""
    below = psutil.Process(supervisor_pid).children(recursive=True)
    try:
        ranks = [one for one in below if "seamlessflow_workers.train" in " ".join(one.cmdline())]
        return [os.sched_getaffinity(one.pid) for one in ranks]
    except (psutil.NoSuchProcess, ProcessLookupError):  # one has just ended
        return []
