"""Takes a trainer's states off the accelerator while its machine does other work, and puts them back to the bit.

DeepSpeed's engine and optimizer in, bytes that the device got back out. ZeRO 1 and 2 are moved by DeepSpeed itself, a
plain optimizer (ZeRO 0) tensor by tensor. DeepSpeed moves the states of ZeRO 3 only under its own fused optimizer,
which needs a compiler on the machine: there they stay where they are.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

_UNPARTITIONED, _PARTITIONED_WEIGHTS = 0, 3  # ZeRO stages


class StatesMover:
    """Moves everything of one engine that lives on `device`. Not thread-safe."""

    def __init__(self, engine: Any, reference: Module | None, device: torch.device) -> None:
        """`engine` is DeepSpeed's, `reference` a frozen model beside it."""
        self._engine = engine
        self._reference = reference
        self._device = device
        self._stage: int = engine.zero_optimization_stage()
        self._is_away = False

    def take_away(self) -> int:
        """Move the states to the host; bytes of the device that are free now and were not before."""
        if self._is_away:
            return 0
        before = _bytes_held(self._device)
        if self._stage == _UNPARTITIONED:
            self._move_plain(torch.device("cpu"))
        elif self._stage < _PARTITIONED_WEIGHTS:
            self._engine.offload_states(pin_memory=self._device.type == "cuda")
            self._move_frozen(torch.device("cpu"))
        if self._reference is not None:
            self._reference.to("cpu")
        self._is_away = True
        return max(0, before - _bytes_held(self._device))

    def bring_back(self) -> None:
        if not self._is_away:
            return
        if self._stage == _UNPARTITIONED:
            self._move_plain(self._device)
        elif self._stage < _PARTITIONED_WEIGHTS:
            self._move_frozen(self._device)
            self._engine.reload_states()
        if self._reference is not None:
            self._reference.to(self._device)
        self._is_away = False

    def _move_frozen(self, device: torch.device) -> None:
        """DeepSpeed moves what it optimizes; the model under an adapter it leaves."""
        for parameter in self._engine.module.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(device)

    def _move_plain(self, device: torch.device) -> None:
        """Parameters keep their identity, so the optimizer's states stay theirs; gradients of a finished step go."""
        module, optimizer = self._engine.module, self._engine.basic_optimizer
        # In half precision the optimizer holds copies of its own.
        optimized = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for tensor in [*module.parameters(), *module.buffers(), *optimized]:
            tensor.grad = None
            tensor.data = tensor.data.to(device)
        for state in optimizer.state.values():
            for name, tensor in _tensors(state.items()):
                if name != "step":  # torch keeps it on the host
                    state[name] = tensor.to(device)


def _tensors(items: Iterable[tuple[str, Any]]) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in items if isinstance(value, Tensor)]


def _bytes_held(device: torch.device) -> int:
    """By this process, of the device's memory; zero where that is the host's own."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)
