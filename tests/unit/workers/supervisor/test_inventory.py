"""What a host computes with, asked of a made-up NVML, or read from the driver's files where there is none."""

import logging
import os
import sys
from pathlib import Path

import pytest

from seamlessflow_workers.supervisor import inventory
from seamlessflow_workers.supervisor.inventory import default_device, find_gpus, probe_devices
from seamlessflow_workers.supervisor.nvml import DeviceHealth, nvml_gpus
from tests.fakes.fake_nvml import FakeGpu, FakeNvml

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without GPUs, with folders in place of the kernel's."""
    folders = {"NVIDIA_DEVICES": "gpus", "DEVICE_NODES": "dev", "PCI_DEVICES": "pci"}
    for constant, name in folders.items():
        monkeypatch.setattr(inventory, constant, tmp_path / name)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
    return tmp_path


@pytest.fixture
def nvml(host: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    (host / "gpus").mkdir()
    made_up = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", made_up)
    return made_up


def kernel_tells(host: Path, pci: str, **values: str) -> None:
    folder = host / "pci" / pci
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")


@pytest.mark.usefixtures("host")
def test_a_host_without_a_driver_needs_no_library() -> None:
    assert (find_gpus(), default_device(), probe_devices([])) == ((), "cpu", {})


def test_gpus_come_with_memory_numa_node_and_cores_of_their_own(host: Path, nvml: FakeNvml) -> None:
    nvml.gpus = [FakeGpu("GPU-a"), FakeGpu("GPU-b", pci="00000000:2A:00.0", memory_bytes=0)]
    kernel_tells(host, "0000:17:00.0", numa_node="0", local_cpulist=f"{CORES[0]}-{CORES[-1]}")
    kernel_tells(host, "0000:2a:00.0", numa_node="-1", local_cpulist=f"{CORES[0]}-{CORES[-1]}")

    first, second = find_gpus()

    assert (first.id, first.name, first.memory_bytes, first.numa) == (
        "GPU-a",
        "NVIDIA H100 80GB HBM3",
        80 << 30,
        0,
    )
    assert (second.id, second.memory_bytes, second.numa) == ("GPU-b", 0, None)
    assert not set(first.cores) & set(second.cores) or len(CORES) == 1
    assert set(first.cores) | set(second.cores) == set(CORES)
    assert nvml.num_open == 0


def test_gpus_far_from_our_cores_share_all_of_them(host: Path, nvml: FakeNvml) -> None:
    nvml.gpus = [FakeGpu("GPU-a"), FakeGpu("GPU-b", pci="")]
    kernel_tells(host, "0000:17:00.0", numa_node="1", local_cpulist="4000-4095")
    assert {core for gpu in find_gpus() for core in gpu.cores} == set(CORES)


def test_a_lost_gpu_hides_no_other(nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml.gpus = [FakeGpu("GPU-a", is_lost=True), FakeGpu("GPU-b")]
    with caplog.at_level(logging.WARNING):
        assert [gpu.id for gpu in find_gpus()] == ["GPU-b"]
    assert "GPU 0 is left out: GPU is lost" in caplog.text


def test_a_gpu_that_mig_has_split_is_its_parts(nvml: FakeNvml) -> None:
    nvml.gpus = [FakeGpu("GPU-a", parts=[FakeGpu("MIG-1"), FakeGpu("MIG-2")]), FakeGpu("GPU-b")]
    assert [gpu.uuid for gpu in nvml_gpus()] == ["MIG-1", "MIG-2", "GPU-b"]


def test_health_tells_lost_gpus_failed_rows_and_uncorrected_errors(nvml: FakeNvml) -> None:
    nvml.gpus = [
        FakeGpu("GPU-well"),
        FakeGpu("GPU-old", has_failed_rows=None, num_uncorrected=None),
        FakeGpu("GPU-rows", has_failed_rows=True),
        FakeGpu("GPU-errors", has_failed_rows=None, num_uncorrected=3),
        FakeGpu("GPU-lost"),
    ]
    devices = find_gpus()
    nvml.gpus[-1].is_lost = True
    gone = nvml.gpus.pop(0)

    assert probe_devices(devices) == {
        gone.uuid: DeviceHealth("the driver reports: Not Found"),
        "GPU-old": DeviceHealth(),
        "GPU-rows": DeviceHealth("its memory has more bad rows than it can replace"),
        "GPU-errors": DeviceHealth(num_uncorrected=3),
        "GPU-lost": DeviceHealth("the driver reports: GPU is lost"),
    }
    assert nvml.num_open == 0


def test_a_library_that_breaks_costs_neither_the_machine_nor_its_devices(
    nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    nvml.gpus = [FakeGpu("GPU-a")]
    devices = find_gpus()
    nvml.is_broken = True
    assert probe_devices(devices) == {}
    assert find_gpus() == (), "the driver's pages tell of none here"
    assert "NVML cannot be used: Not Supported" in caplog.text


def test_gpus_without_the_drivers_pages_are_found_by_their_nodes(host: Path) -> None:
    assert default_device() == "cpu"
    (host / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (host / "dev" / name).touch()

    assert default_device() == "cuda"
    assert [(one.id, one.name) for one in find_gpus()] == [("0", "NVIDIA device"), ("1", "NVIDIA device")]
    assert probe_devices(find_gpus()) == {}


def test_the_drivers_pages_tell_uuid_model_and_what_is_near(host: Path) -> None:
    for number, name in enumerate(("0000:17:00.0", "0000:2a:00.0")):
        folder = host / "gpus" / name
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t NVIDIA A100\nGPU UUID: \t GPU-{number}\nIRQ: 5\n")
        kernel_tells(host, name, numa_node=str(number), local_cpulist=str(CORES[0]))

    assert [(one.id, one.name, one.numa, one.cores) for one in find_gpus()] == [
        ("GPU-0", "NVIDIA A100", 0, [CORES[0]]),
        ("GPU-1", "NVIDIA A100", 1, [CORES[0]]),
    ]
