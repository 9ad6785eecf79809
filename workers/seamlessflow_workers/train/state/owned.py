"""Which elements of which parameters a rank owns with their optimizer, whatever the ZeRO stage.

It takes DeepSpeed's engine and gives views of its memory: float32 master weights and the optimizer's moments, by name
of the parameter and position in it. So a checkpoint can be written by slices and read back by any number of ranks, in
any stage. Invariant: the slices of all ranks cover each trained parameter; where ranks own the same slice
(`is_replicated`), their values are equal to the bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

MASTER = "param"  # beside the names of moments: exp_avg, exp_avg_sq
_STEP = "step"
_PARTITIONED_WEIGHTS = 3  # ZeRO stage


@dataclass(frozen=True, slots=True)
class ShardOf:
    """A parameter that is only a shard of a whole one: the shape of the whole, and where the shard begins in it,
    flat."""

    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class OwnedSlice:
    """Elements [start, start + num_elements) of a parameter when it is flat, row after row.

    `owner` is the tensor that the optimizer steps, in which the slice begins at `offset`.
    """

    name: str
    shape: tuple[int, ...]  # of the whole parameter
    start: int
    num_elements: int
    is_replicated: bool
    owner: Tensor
    offset: int
    optimizer: torch.optim.Optimizer

    @property
    def end(self) -> int:
        return self.start + self.num_elements

    @property
    def step(self) -> float | None:
        """Return how many steps the moments contain; None before the first one."""
        step = self.optimizer.state.get(self.owner, {}).get(_STEP)
        return None if step is None else float(step)

    def values(self) -> dict[str, Tensor]:
        """Return flat views [num_elements] of the master weights and, after a first step, of the moments."""
        return {MASTER: self._view(self.owner), **self._moments()}

    def restore(self, read: Callable[[str], Tensor], *, step: float | None, moments: Sequence[str]) -> None:
        """Overwrite all values with `read(kind)` [num_elements]; `step` is None if there are no moments."""
        self._view(self.owner).copy_(read(MASTER))
        if step is None:
            self.optimizer.state.pop(self.owner, None)
            return
        state = self.optimizer.state.setdefault(self.owner, {})
        for kind in moments:
            if kind not in state:
                state[kind] = torch.zeros_like(self.owner, requires_grad=False)
            self._view(state[kind]).copy_(read(kind))
        known = state.get(_STEP)
        if isinstance(known, Tensor):
            known.fill_(step)
        else:
            state[_STEP] = torch.tensor(step, dtype=torch.float32, device=self._step_device)

    @property
    def _step_device(self) -> torch.device:
        """Return where the optimizer expects its count of steps: on the host, unless a kernel reads it."""
        defaults = self.optimizer.defaults
        is_read_by_kernel = defaults.get("fused") or defaults.get("capturable")
        return self.owner.device if is_read_by_kernel else torch.device("cpu")

    def _moments(self) -> dict[str, Tensor]:
        state = self.optimizer.state.get(self.owner, {})
        return {
            kind: self._view(value)
            for kind, value in state.items()
            if isinstance(value, Tensor) and value.shape == self.owner.shape and kind != _STEP
        }

    def _view(self, tensor: Tensor) -> Tensor:
        return tensor.detach().view(-1).narrow(0, self.offset, self.num_elements)


def owned_slices(engine: Any, shards: Mapping[Tensor, ShardOf]) -> list[OwnedSlice]:
    """Return the slices that this rank of DeepSpeed's engine owns, in the order of the module's parameters.

    `shards`: parameters of which other ranks have other shards under the same name. ZeRO 0 cannot have any.
    """
    return [
        replace(one, shape=shard.shape, start=shard.start + one.start)
        if (shard := shards.get(parameter))
        else one
        for parameter, one in _owned(engine)
    ]


def _owned(engine: Any) -> Iterator[tuple[Tensor, OwnedSlice]]:
    names = {
        parameter: name for name, parameter in engine.module.named_parameters() if parameter.requires_grad
    }
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() == _PARTITIONED_WEIGHTS:
        return _of_partitioned_weights(names, optimizer)
    if engine.zero_optimization():
        return _of_partitioned_optimizer(names, optimizer)
    return _of_replicas(names, optimizer)


def weights_follow(engine: Any) -> None:
    """Bring the weights that compute in line with restored master weights. All ranks call it together."""
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() == _PARTITIONED_WEIGHTS:
        optimizer.checkpoint_event_prologue()  # gathers nothing any more, so no old weights are left behind
        for number in range(len(optimizer.fp16_groups)):
            optimizer._reassign_or_swap_out_partitioned_parameters(number)  # as after each step
        optimizer.checkpoint_event_epilogue()
    elif engine.zero_optimization():
        optimizer.update_lp_params()
    else:
        for weight, master in _pairs(engine.module.parameters(), optimizer):
            weight.data.copy_(master.data)


def _of_partitioned_weights(names: Mapping[Any, str], optimizer: Any) -> Iterator[tuple[Any, OwnedSlice]]:
    for parameter, name in names.items():
        group, offset, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
        start = size * optimizer._get_param_partition_rank(parameter)
        num_elements = min(size, parameter.ds_numel - start)  # the rest of the last partition is padding
        if num_elements > 0:
            yield (
                parameter,
                OwnedSlice(
                    name=name,
                    shape=tuple(parameter.ds_shape),
                    start=start,
                    num_elements=num_elements,
                    is_replicated=False,
                    owner=optimizer.fp32_partitioned_groups_flat[group],
                    offset=offset,
                    optimizer=optimizer.optimizer,
                ),
            )


def _of_partitioned_optimizer(names: Mapping[Any, str], optimizer: Any) -> Iterator[tuple[Any, OwnedSlice]]:
    for parameter, name in names.items():
        fragment = parameter._hp_mapping
        if fragment is not None:
            (owner,) = optimizer.optimizer.param_groups[fragment.param_group_index]["params"]
            yield (
                parameter,
                OwnedSlice(
                    name=name,
                    shape=tuple(parameter.shape),
                    start=fragment.lp_fragment_address.start,
                    num_elements=fragment.lp_fragment_address.numel,
                    is_replicated=False,
                    owner=owner,
                    offset=fragment.hp_fragment_address.start,
                    optimizer=optimizer.optimizer,
                ),
            )


def _of_replicas(names: Mapping[Tensor, str], optimizer: Any) -> Iterator[tuple[Any, OwnedSlice]]:
    for parameter, owner in _pairs(names, optimizer):
        yield (
            parameter,
            OwnedSlice(
                name=names[parameter],
                shape=tuple(parameter.shape),
                start=0,
                num_elements=parameter.numel(),
                is_replicated=True,
                owner=owner,
                offset=0,
                optimizer=getattr(optimizer, "optimizer", optimizer),
            ),
        )


def _pairs(parameters: Any, optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each trained parameter with its master: itself, unless it computes in fewer bits."""
    masters: dict[Tensor, Tensor] = {}
    for weights, group in zip(
        getattr(optimizer, "fp16_groups", ()), getattr(optimizer, "fp32_groups", ()), strict=True
    ):
        masters.update(zip(weights, group, strict=True))
    for parameter in parameters:
        if parameter.requires_grad:
            yield parameter, masters.get(parameter, parameter)
