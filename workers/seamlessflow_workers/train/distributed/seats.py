"""Where the ranks of a trainer compute: each on its device, on the cores near it, with one thread for each of them.

It takes the devices of the machine and how many ranks train there, and binds the calling process. Invariant: no two
ranks get a core in common while there are cores for all.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seamlessflow.core.liveness.device_errors import FAILED_BY_ITSELF
from seamlessflow.core.types.device_cores import split_cores
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.process.device_environment import trainer_devices


def rank_cores(devices: Sequence[Device], num_ranks: int) -> list[list[int]]:
    """Return the cores of each rank: those of its device, or an equal number of all if there are more ranks than
    devices. Nothing for a rank whose cores are not known, which then keeps those that it has."""
    if num_ranks <= len(devices):
        return [device.cores for device in devices[:num_ranks]]
    return split_cores({core for device in devices for core in device.cores}, num_ranks)


def device_failure(local_rank: int, environment: Mapping[str, str]) -> str:
    """Name the rank whose device failed by itself, so that the supervisor can identify the device."""
    devices = trainer_devices(environment)
    name = f"the device {devices[local_rank].id}" if local_rank < len(devices) else "the device"
    return f"{name} of the trainer's rank {local_rank} {FAILED_BY_ITSELF}"


def pin_to_cores(cores: Sequence[int]) -> None:
    """Bind all threads of this process to the cores, and set how many threads it computes with. Call it before it
    computes. Without cores, nothing changes."""
    if not cores:
        return
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(int(thread.name), cores)
    os.environ["OMP_NUM_THREADS"] = str(len(cores))  # read when the process group starts
