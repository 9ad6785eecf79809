"""Finds from the last words of a child whether a device itself failed, and which one.

Enters: why a child ended, and the devices that it computed on. Leaves: the device, or none. Invariant: an error that a
program can cause (out of memory, an illegal access, a busy device) is never taken for the device's.
"""

from collections.abc import Sequence

from seamlessflow.core.types.devices import Device

FAILED_BY_ITSELF = "failed with an error of its own"  # how a trainer names the device of one of its ranks
# As CUDA's runtime, NCCL and NVIDIA's driver write them, in lower case.
_SIGNS = (
    FAILED_BY_ITSELF,
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "gpu is lost",
    "fallen off the bus",
    "hardware stack error",
    "cudaerroreccuncorrectable",
    "cudaerrornvlinkuncorrectable",
    "cudaerrorhardwarestackerror",
)


def is_device_error(reason: str) -> bool:
    text = reason.lower()
    return any(sign in text for sign in _SIGNS)


def failed_device(reason: str, devices: Sequence[Device]) -> Device | None:
    """Return the device that failed: the one that the reason names, or the only one there is. None if no device did, or
    if the reason leaves open which."""
    if not is_device_error(reason):
        return None
    named = [device for device in devices if device.id in reason]
    candidates = named or list(devices)
    return candidates[0] if len(candidates) == 1 else None
