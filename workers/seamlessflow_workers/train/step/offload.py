"""Moves a trainer's states off the accelerator while its machine does other work, and restores them bit for bit.

It takes DeepSpeed's engine and optimizer and returns the bytes freed on the device. It moves the *storages* of tensors:
their bytes go to the host and their device memory is freed, while every tensor, and every view that DeepSpeed keeps of
its flat buffers, stays as it is. So the same code works for all ZeRO stages and for adapters over frozen weights.
(DeepSpeed's own offloading supports ZeRO 3 only with its fused optimizer, and loses frozen parameters there.)
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, UntypedStorage

from seamlessflow.core.sizing.gpu_memory import CONTEXT_BYTES
from seamlessflow_workers.train.step.reference import ReferenceModel
from seamlessflow_workers.train.step_engine import DeviceUse

_PARTITIONED_WEIGHTS = 3  # ZeRO stage
_GRADIENT_BUCKETS = "ipg_buckets"  # DeepSpeed's buffers for gradients in flight; between steps they are empty


@dataclasses.dataclass(frozen=True, slots=True)
class _Away:
    storage: UntypedStorage  # on the device, empty now
    num_bytes: int
    host: Tensor | None  # uint8 [num_bytes]; None: its contents did not matter


class StatesMover:
    """Moves everything of one engine that lives on `device`. Not thread-safe."""

    def __init__(self, engine: Any, reference: ReferenceModel | None, device: torch.device) -> None:
        """`engine` is DeepSpeed's."""
        self._engine = engine
        self._reference = reference
        self._device = device
        self._away: list[_Away] | None = None

    def take_away(self) -> int:
        """Move the states to the host; return how many bytes of the device this freed."""
        if self._away is not None:
            return 0
        if self._engine.zero_optimization_stage() == _PARTITIONED_WEIGHTS:
            self._engine.optimizer.empty_partition_cache()  # weights that were gathered for the next step
        if self._reference is not None:
            self._reference.release()
        before = _bytes_in_use(self._device)
        self._away = [self._give_up(storage, has_contents) for storage, has_contents in self._storages()]
        if self._device.type == "cuda":
            return before - _bytes_in_use(self._device)
        return sum(away.num_bytes for away in self._away)

    def bring_back(self) -> None:
        if self._away is None:
            return
        for away in self._away:
            away.storage.resize_(away.num_bytes)
            if away.host is not None:
                _bytes_of(away.storage).copy_(away.host)
        self._away = None

    def _give_up(self, storage: UntypedStorage, has_contents: bool) -> _Away:
        num_bytes, host = storage.nbytes(), None
        if has_contents:
            is_pinned = self._device.type == "cuda"
            host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
            host.copy_(_bytes_of(storage))
        storage.resize_(0)
        return _Away(storage, num_bytes, host)

    def _storages(self) -> list[tuple[UntypedStorage, bool]]:
        """Return each storage on the device once, and whether its contents matter."""
        found: dict[int, tuple[UntypedStorage, bool]] = {}
        scratch = getattr(self._engine.optimizer, _GRADIENT_BUCKETS, {})
        for tensors, has_contents in ((_tensors_in(scratch, set()), False), (self._tensors(), True)):
            for tensor in tensors:
                storage = tensor.untyped_storage()
                if storage.device.type == self._device.type and storage.nbytes() and storage.resizable():
                    _, is_known = found.get(storage.data_ptr(), (storage, False))
                    found[storage.data_ptr()] = (storage, has_contents or is_known)
        return list(found.values())

    def _tensors(self) -> Iterator[Tensor]:
        for module in (self._engine.module, *([self._reference.module] if self._reference else ())):
            for tensor in (*module.parameters(), *module.buffers()):
                yield from filter(None.__ne__, (tensor, tensor.grad, getattr(tensor, "ds_tensor", None)))
        seen: set[int] = set()
        for optimizer in (self._engine.optimizer, self._engine.basic_optimizer):
            states = {name: value for name, value in vars(optimizer).items() if name != _GRADIENT_BUCKETS}
            yield from _tensors_in(states, seen)


def device_use(device: torch.device, *, freed_bytes: int) -> DeviceUse:
    """Return what this process keeps of a GPU, and the most that its tensors took. What the allocator reserved beyond
    them does not count: it takes whatever is free, and works with less."""
    return DeviceUse(
        freed_bytes=freed_bytes,
        kept_bytes=_bytes_in_use(device) + CONTEXT_BYTES,
        peak_bytes=torch.cuda.max_memory_allocated(device) + CONTEXT_BYTES,
    )


def _tensors_in(value: object, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors in nested containers and dataclasses."""
    if isinstance(value, Tensor):
        yield value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    members: Any = ()
    if isinstance(value, Mapping):
        members = value.values()
    elif isinstance(value, list | tuple | set):
        members = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = vars(value).values()
    for member in members:
        yield from _tensors_in(member, seen)


def _bytes_of(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _bytes_in_use(device: torch.device) -> int:
    """Return the bytes of the device's memory that this process uses; 0 for the CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)
