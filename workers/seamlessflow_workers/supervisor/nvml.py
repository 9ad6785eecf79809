"""Asks NVIDIA's management library (NVML) which GPUs the host has and how they are.

It takes nothing from CUDA and initialises none of it. Its package is imported only here, and only when asked, so a host
without a driver needs neither. Invariant: a fault of one GPU never hides another one.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


class NvmlUnavailable(RuntimeError):
    """The library, its package or the driver is missing; the message says which, in one clause."""


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """A GPU, or an instance of one (MIG). `pci` is its address as the kernel writes it; "" if it is unknown."""

    uuid: str
    name: str
    memory_bytes: int  # 0 if it is unknown
    pci: str


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How a device is: why it cannot compute (empty if it can), and how many errors its memory could not correct."""

    problem: str = ""
    num_uncorrected: int = 0


def nvml_gpus() -> list[FoundGpu]:
    """Return the GPUs in the driver's order, those split by MIG as their instances. One that is lost already is left
    out, with a warning. Raises NvmlUnavailable."""
    found: list[FoundGpu] = []
    with _library() as nvml:
        for number in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found += [_found(nvml, one) for one in _instances(nvml, handle) or [handle]]
            except nvml.NVMLError as error:
                log.warning("GPU %d is left out: %s", number, error)
    return found


def nvml_health(uuids: Sequence[str]) -> dict[str, DeviceHealth]:
    """Return how each of these GPUs is. Raises NvmlUnavailable."""
    with _library() as nvml:
        return {uuid: _health(nvml, uuid) for uuid in uuids}


@contextmanager
def _library() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable("the package nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML cannot be used: {error}") from error


def _instances(nvml: Any, handle: Any) -> list[Any]:
    """Return the instances that MIG has split the GPU into; none if it has not."""
    try:
        is_split, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # this model cannot be split
        return []
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if is_split else 0):
        try:
            instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except nvml.NVMLError:  # fewer instances than there could be
            break
    return instances


def _found(nvml: Any, handle: Any) -> FoundGpu:
    try:
        memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # it has no memory of its own
        memory_bytes = 0
    try:
        pci = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    except nvml.NVMLError:
        pci = ""
    uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
    return FoundGpu(_text(uuid), _text(name), memory_bytes, _kernel_address(pci))


def _kernel_address(pci: str) -> str:
    """Return a PCI address as the kernel writes it: four digits for the domain, where NVML writes eight."""
    domain, separator, address = pci.lower().partition(":")
    return f"{domain[-4:]}:{address}" if separator else ""


def _health(nvml: Any, uuid: str) -> DeviceHealth:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        rows = _answered(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
        kind = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        errors = _answered(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, *kind)
    except nvml.NVMLError as error:
        return DeviceHealth(f"the driver reports: {error}")
    has_failed = rows is not None and bool(rows[3])
    problem = "its memory has more bad rows than it can replace" if has_failed else ""
    return DeviceHealth(problem, errors or 0)


def _answered(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer; None if this model has none. Raises NVMLError if the GPU is gone."""
    try:
        return ask(*arguments)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            raise
        return None


def _text(value: str | bytes) -> str:
    """Return text, which older versions of the package return as bytes."""
    return value.decode() if isinstance(value, bytes) else value
