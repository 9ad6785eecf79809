"""Which devices a child sees, which cores it runs on, and how many threads it computes with.

It takes devices of the machine and returns variables and cores; it starts nothing. Invariant: a child for which a set
of devices is meant sees no GPU besides them, and starts no more threads than they have cores.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from seamlessflow.core.types.devices import Device
from seamlessflow_workers.process.environment import DEVICE_ENVIRONMENT

TRAINER_DEVICES_VARIABLE = "SEAMLESSFLOW_TRAINER_DEVICES"  # JSON: which device each rank of a trainer gets


def devices_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables of a child that computes on exactly these devices (at least one), all of one kind."""
    kind = devices[0].kind
    environment = dict(DEVICE_ENVIRONMENT[kind])
    if kind == "cuda":
        # By UUID, so that neither an order of devices nor a variable of ours changes which ones they are. The order is
        # only needed where the driver reports no UUIDs.
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(device.id for device in devices)
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if num_cores := sum(len(device.cores) for device in devices):
        environment["OMP_NUM_THREADS"] = str(num_cores)
    return environment


def devices_cores(devices: Sequence[Device], *, otherwise: Collection[int]) -> frozenset[int]:
    """Return the cores of these devices, or `otherwise` if they are not known."""
    return frozenset(core for device in devices for core in device.cores) or frozenset(otherwise)


def trainer_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables of a trainer, which divides these devices among its ranks."""
    encoded = msgspec.json.encode(list(devices)).decode()
    return {**devices_environment(devices), TRAINER_DEVICES_VARIABLE: encoded}


def trainer_devices(environment: Mapping[str, str]) -> list[Device]:
    """Return the devices that a trainer was started with; none if it was started without a supervisor."""
    return msgspec.json.decode(environment.get(TRAINER_DEVICES_VARIABLE, "[]"), type=list[Device])
