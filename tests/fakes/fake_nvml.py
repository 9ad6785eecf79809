"""NVIDIA's management library on a host that has no GPU: the part of `pynvml` that is asked, with GPUs made up here.

A GPU may be lost, split by MIG, count errors of its memory, or not know what it is asked, as real ones do.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

_NOT_SUPPORTED, _NOT_FOUND, _LOST, _RESET = 3, 6, 15, 16
_SAID = {_NOT_SUPPORTED: "Not Supported", _NOT_FOUND: "Not Found", _LOST: "GPU is lost"}


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(_SAID[value])
        self.value = value


@dataclass
class FakeGpu:
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 80 << 30
    pci: str = "00000000:17:00.0"
    is_lost: bool = False
    num_uncorrected: int | None = 0  # None: it has no such memory
    has_failed_rows: bool | None = False  # None: it replaces no rows
    parts: list["FakeGpu"] = field(default_factory=list)


class FakeNvml:
    """Stands in for the module `pynvml`."""

    NVMLError = FakeNvmlError
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = _LOST, _RESET
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.num_open = 0
        self.is_broken = False

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names, here and below
        if self.is_broken:
            raise FakeNvmlError(_NOT_SUPPORTED)
        self.num_open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.num_open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> FakeGpu:  # noqa: N802
        return self._alive(self.gpus[number])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        for gpu in self.gpus:
            if uuid == gpu.uuid:
                return gpu
        raise FakeNvmlError(_NOT_FOUND)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return self._alive(gpu).uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> bytes:  # noqa: N802
        return gpu.name.encode()

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:  # noqa: N802
        if not gpu.memory_bytes:
            raise FakeNvmlError(_NOT_SUPPORTED)
        return SimpleNamespace(total=gpu.memory_bytes)

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> Any:  # noqa: N802
        if not gpu.pci:
            raise FakeNvmlError(_NOT_SUPPORTED)
        return SimpleNamespace(busId=gpu.pci)

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # noqa: N802
        return [int(bool(gpu.parts))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, number: int) -> FakeGpu:  # noqa: N802
        if number >= len(gpu.parts):
            raise FakeNvmlError(_NOT_FOUND)
        return gpu.parts[number]

    def nvmlDeviceGetRemappedRows(self, gpu: FakeGpu) -> tuple[int, int, int, int]:  # noqa: N802
        if self._alive(gpu).has_failed_rows is None:
            raise FakeNvmlError(_NOT_SUPPORTED)
        return (0, 0, 0, int(bool(gpu.has_failed_rows)))

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, counter: int) -> int:  # noqa: N802
        if gpu.num_uncorrected is None:
            raise FakeNvmlError(_NOT_SUPPORTED)
        return gpu.num_uncorrected

    def _alive(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.is_lost:
            raise FakeNvmlError(_LOST)
        return gpu
