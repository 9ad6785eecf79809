"""Which devices a machine takes: by flag, by environment, by what the host shows."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seamlessflow.core.types.devices import core_set_id
from seamlessflow_workers.supervisor import inventory
from seamlessflow_workers.supervisor.config import InvalidFlag, SupervisorConfig, read_config
from tests.fixtures.machine_devices import gpu

CORES = sorted(os.sched_getaffinity(0))
GPUS = tuple(gpu(number, cores=[CORES[0]]) for number in range(4))
Read = Callable[..., SupervisorConfig]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    token = tmp_path / "token"
    token.write_text("secret")
    given = ["--name", "a", "--control-plane-url", "http://web:8000", "--token-file", str(token)]
    return lambda *flags, **environment: read_config([*given, *flags], environment)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "find_gpus", lambda: GPUS)


def ids(config: SupervisorConfig) -> list[str]:
    return [device.id for device in config.devices]


def test_a_host_without_gpus_is_one_device_of_all_its_cores(read: Read) -> None:
    config = read("--device", "cpu")
    assert ids(config) == [core_set_id(CORES)]
    assert config.cores == frozenset(CORES)
    assert ids(read("--device", "cpu", "--cores", str(CORES[0]))) == [f"cpu:{CORES[0]}"]


def test_core_sets_become_devices_and_the_machine_keeps_to_them(read: Read) -> None:
    named = f"cpu:{CORES[-1]}"
    for config in (read("--devices", named), read(SEAMLESSFLOW_DEVICES=named)):
        assert (config.device, ids(config), config.cores) == ("cpu", [named], frozenset({CORES[-1]}))


@pytest.mark.usefixtures("gpus")
def test_a_gpu_host_takes_every_gpu_that_is_visible(read: Read) -> None:
    assert read().devices == GPUS
    assert read(CUDA_VISIBLE_DEVICES=f"2,{GPUS[0].id}").devices == (GPUS[2], GPUS[0])
    assert read(CUDA_VISIBLE_DEVICES="2,3", SEAMLESSFLOW_DEVICES="1").devices == (GPUS[3],)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_leave_the_processor(read: Read, hidden: str) -> None:
    config = read(CUDA_VISIBLE_DEVICES=hidden)
    assert (config.device, ids(config)) == ("cpu", [core_set_id(CORES)])


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    "flags,problem",
    [
        (("--devices", "0,9"), "there is no GPU 9"),
        (("--device", "cpu", "--devices", "0"), "are of the kind cuda, but --device says cpu"),
        (("--device", "cuda", "--devices", "cpu:0"), "are of the kind cpu, but --device says cuda"),
        (("--devices", "cpu:65535"), "there is no core 65535"),
    ],
)
def test_devices_that_this_machine_cannot_have_are_refused(
    read: Read, flags: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InvalidFlag, match=problem):
        read(*flags)


def test_gpus_are_refused_where_there_are_none(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "find_gpus", tuple)
    for flags in (("--devices", "0"), ("--device", "cuda")):
        with pytest.raises(InvalidFlag, match="this host shows no GPU"):
            read(*flags)


def test_the_host_has_its_own_name_unless_another_is_given(read: Read) -> None:
    assert read().host == os.uname().nodename
    assert read(SEAMLESSFLOW_HOST_NAME="node-7").host == "node-7"
