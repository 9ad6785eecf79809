"""Finds what this host computes with: its GPUs, its cores and their memory. It takes nothing and changes nothing.

Invariant: no call here initialises CUDA, because children are forked later, and a driver's context cannot be forked.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from seamlessflow.core.types.devices import Device, DeviceKind, select_gpus

NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
DEVICE_NODES = Path(
    "/dev"
)  # some sandboxes and containers expose devices without the driver's files in /proc
PROCESSORS = Path("/proc/cpuinfo")
UNNAMED_GPU = "NVIDIA device"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE_VISIBLE = ("", "-1", "NoDevFiles")


def find_gpus() -> tuple[Device, ...]:
    """Return all GPUs of the host in the order of the driver; what it does not tell is missing."""
    if not NVIDIA_DEVICES.is_dir():
        nodes = len(list(DEVICE_NODES.glob("nvidia[0-9]*")))
        return tuple(Device(id=str(n), kind="cuda", name=UNNAMED_GPU, memory_bytes=0) for n in range(nodes))
    told = [_fields(folder / "information") for folder in sorted(NVIDIA_DEVICES.iterdir())]
    return tuple(
        Device(
            id=fields.get("GPU UUID", str(number)),
            kind="cuda",
            name=fields.get("Model", UNNAMED_GPU),
            memory_bytes=0,
        )
        for number, fields in enumerate(told)
    )


def visible_gpus(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the GPUs of the host that CUDA_VISIBLE_DEVICES leaves visible, in its order. Raises InvalidDevices."""
    text = environment.get(VISIBLE)
    if text is not None and text.strip() in NONE_VISIBLE:
        return ()
    return select_gpus(text, found=find_gpus(), source=VISIBLE)


def default_device() -> DeviceKind:
    return "cuda" if find_gpus() else "cpu"


def memory_bytes() -> int:
    """Return the host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor_name() -> str:
    return _fields(PROCESSORS).get("model name") or platform.machine()


def _fields(path: Path) -> dict[str, str]:
    """Return the first value of each `key : value` line; nothing if the file cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields
