"""Finds what this host computes with: its GPUs with their cores, its processor, its memory. It changes nothing.

GPUs are asked of NVML; where it is missing, the driver's files in /proc and /dev have less. The kernel's files name the
cores near a GPU. Invariant: no call here initialises CUDA, because children are forked later, and a driver's context
cannot be forked.
"""

import logging
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from seamlessflow.core.types.device_cores import assign_cores
from seamlessflow.core.types.devices import Device, DeviceKind, select_gpus
from seamlessflow_workers.supervisor.nvml import (
    DeviceHealth,
    FoundGpu,
    NvmlUnavailable,
    nvml_gpus,
    nvml_health,
)

NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
DEVICE_NODES = Path(
    "/dev"
)  # some sandboxes and containers expose devices without the driver's files in /proc
PROCESSORS = Path("/proc/cpuinfo")
PCI_DEVICES = Path("/sys/bus/pci/devices")
CORES = Path("/sys/devices/system/cpu")
UNNAMED_GPU = "NVIDIA device"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE_VISIBLE = ("", "-1", "NoDevFiles")

log = logging.getLogger(__name__)


def find_gpus() -> tuple[Device, ...]:
    """Return all GPUs of the host in the order of the driver, each with its slice of the cores that we may use."""
    found = _found_gpus()
    usable = frozenset(os.sched_getaffinity(0))
    near = [_cores_near(gpu.pci) & usable or usable for gpu in found]
    core_sets = assign_cores(near, _siblings(usable))
    return tuple(
        Device(
            id=gpu.uuid,
            kind="cuda",
            name=gpu.name,
            memory_bytes=gpu.memory_bytes,
            numa=_numa_node(gpu.pci),
            cores=cores,
        )
        for gpu, cores in zip(found, core_sets, strict=True)
    )


def visible_gpus(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the GPUs of the host that CUDA_VISIBLE_DEVICES leaves visible, in its order. Raises InvalidDevices."""
    text = environment.get(VISIBLE)
    if text is not None and text.strip() in NONE_VISIBLE:
        return ()
    return select_gpus(text, found=find_gpus(), source=VISIBLE)


def default_device() -> DeviceKind:
    return "cuda" if find_gpus() else "cpu"


def probe_devices(devices: Sequence[Device]) -> dict[str, DeviceHealth]:
    """Return the health of each device, by id, if the host reports it. It may take a while."""
    gpus = [device.id for device in devices if device.kind == "cuda"]
    if not gpus or not _has_driver():
        return {}
    try:
        return nvml_health(gpus)
    except NvmlUnavailable:  # `find_gpus` has reported it
        return {}


def memory_bytes() -> int:
    """Return the host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor_name() -> str:
    return _fields(PROCESSORS).get("model name") or platform.machine()


def _found_gpus() -> list[FoundGpu]:
    if not _has_driver():
        return []
    try:
        return nvml_gpus()
    except NvmlUnavailable as error:
        log.warning("%s; the memory of GPUs and their health are not known", error)
    if not NVIDIA_DEVICES.is_dir():
        return [FoundGpu(str(number), UNNAMED_GPU, 0, "") for number in range(len(_nodes()))]
    described = [
        (folder.name, _fields(folder / "information")) for folder in sorted(NVIDIA_DEVICES.iterdir())
    ]
    return [
        FoundGpu(fields.get("GPU UUID", str(number)), fields.get("Model", UNNAMED_GPU), 0, pci)
        for number, (pci, fields) in enumerate(described)
    ]


def _has_driver() -> bool:
    return NVIDIA_DEVICES.is_dir() or bool(_nodes())


def _nodes() -> list[Path]:
    return list(DEVICE_NODES.glob("nvidia[0-9]*"))


def _cores_near(pci: str) -> frozenset[int]:
    return _core_list(PCI_DEVICES / pci / "local_cpulist") if pci else frozenset()


def _numa_node(pci: str) -> int | None:
    text = _text(PCI_DEVICES / pci / "numa_node") if pci else ""
    return int(text) if text.isdigit() else None  # -1: the host has only one


def _siblings(cores: frozenset[int]) -> set[frozenset[int]]:
    """Return which cores are threads of the same physical one."""
    return {_core_list(CORES / f"cpu{core}" / "topology" / "thread_siblings_list") for core in cores}


def _core_list(path: Path) -> frozenset[int]:
    """Read the kernel's lists, such as `0-3,8`; nothing if there is none."""
    cores: set[int] = set()
    for span in filter(None, _text(path).split(",")):
        first, _, last = span.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def _fields(path: Path) -> dict[str, str]:
    """Return the first value of each `key : value` line."""
    fields: dict[str, str] = {}
    for line in _text(path).splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields


def _text(path: Path) -> str:
    """Return the contents of one of the kernel's files; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
