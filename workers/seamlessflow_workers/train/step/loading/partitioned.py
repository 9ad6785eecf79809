"""Loads a model so that each rank keeps only its partition of every parameter, as ZeRO-3 uses it (arXiv 1910.02054).

It takes a folder in the transformers format and returns a model with DeepSpeed's partitioned parameters, as if the
whole model had been given to `deepspeed.zero.Init`. Invariant: beside its partitions, a rank has the values of at
most one parameter, and only of one that is stored as several tensors. Every rank reads the files itself, so nothing is
sent. (transformers' own loading under ZeRO-3 reads the whole checkpoint into the memory of every rank.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from seamlessflow_workers.train.step.loading.model_files import has_mappable_files, model_tensors
from seamlessflow_workers.train.step.process_group import deepspeed, training_device
from seamlessflow_workers.train.step_engine import ModelRefused
from seamlessflow_workers.weights.freed_memory import freed_memory_return

_NUM_NAMED = 3  # of the missing parameters, in an error


def can_load_in_parts(folder: Path) -> bool:
    """Return whether a model's weights can be read tensor by tensor. Raises OSError or ValueError without a model."""
    return has_mappable_files(folder) and getattr(_config(folder), "quantization_config", None) is None


def partitioned_load(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Load this rank's partition of a model; all ranks do. Raises ModelRefused, OSError or ValueError."""
    with _parameters_without_values():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            _config(folder), dtype=dtype, trust_remote_code=False
        )
        model.tie_weights()
    partitions = _Partitions(model, dtype)
    with torch.no_grad():
        for name, values in model_tensors(folder, model):
            partitions.fill(name, values)
    partitions.require_all(folder)
    return model


@contextmanager
def gathered_in_calls(model: PreTrainedModel, *, num_token_ids: int | None = None) -> Iterator[None]:
    """A context in which each module of a model gathers its partitioned parameters, if any, while it is called.

    Once DeepSpeed's engine is made, it does so itself, and prefetches. All ranks make the same calls. With
    `num_token_ids` the model computes as if its vocabulary ended there, if it can: an embedding or a head of the whole
    vocabulary is often the largest parameter by far, and a few token ids are enough to try a model out.
    """
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    handles = []
    for module in model.modules():
        parameters = list(filter(is_partitioned, module.parameters(recurse=False)))
        if parameters:
            has_row_per_token = module in ends and _has_row_per_token(module)
            gather = _Gather(module, parameters, num_token_ids if has_row_per_token else None)
            handles.append(module.register_forward_pre_hook(gather.enter))
            handles.append(module.register_forward_hook(gather.leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def is_partitioned(parameter: Tensor) -> bool:
    return hasattr(parameter, "ds_shape")


def full_shape(parameter: Tensor) -> torch.Size:
    """Return the shape of a parameter that may be partitioned, and empty at the moment."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


class _Gather:
    """Puts the parameters of a module together while it is called. To DeepSpeed they stay partitioned.

    DeepSpeed's own gathering takes several times the bytes of a parameter on gloo.
    """

    def __init__(self, module: nn.Module, parameters: list[nn.Parameter], num_rows: int | None) -> None:
        self._module: Any = module
        self._parameters = parameters
        self._num_rows = num_rows  # of its only parameter; None: all
        self._padding_index = getattr(module, "padding_idx", None)

    def enter(self, *_: Any) -> None:
        for parameter in self._parameters:
            parameter.data = _gathered(parameter, self._num_rows)
        if self._padding_index is not None:
            self._module.padding_idx = None  # it is there for gradients, and must be the number of a row

    def leave(self, *_: Any) -> None:
        for parameter in self._parameters:
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        if self._padding_index is not None:
            self._module.padding_idx = self._padding_index
        freed_memory_return()  # else every module leaves free blocks that the next one cannot use


def _has_row_per_token(module: nn.Module) -> bool:
    """Return whether a module has a row for each token of the vocabulary, and nothing else."""
    is_head = type(module) is nn.Linear and module.bias is None
    return is_head or isinstance(module, nn.Embedding)


def _gathered(parameter: Any, num_rows: int | None) -> Tensor:
    """Return a partitioned parameter, or its first rows, from the ranks that have them."""
    shape = full_shape(parameter)
    if num_rows is not None:
        shape = torch.Size([min(num_rows, shape[0]), *shape[1:]])
    partition: Tensor = parameter.ds_tensor
    flat = torch.zeros(shape.numel(), dtype=partition.dtype, device=partition.device)
    own = flat[partition.numel() * parameter.ds_zero_partition_rank :][: partition.numel()]
    own.copy_(partition[: own.numel()])
    torch.distributed.all_reduce(flat, group=parameter.ds_process_group)  # exact: all others have 0 there
    return flat.view(shape)


class _Partitions:
    """The parameters of a model without values, replaced one by one by partitioned ones."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        self._device = training_device()
        # Without parameters it partitions nothing; it also makes linear layers save parameters instead of gathered
        # weights for their backward pass.
        self._init = deepspeed.zero.Init(module=nn.Module(), dtype=dtype)
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._buffers = dict(model.named_buffers())
        for buffer in self._buffers.values():
            buffer.data = buffer.data.to(self._device)
        self._uses: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}  # more than one if tied
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                self._uses.setdefault(parameter, []).append((module, name))

    def fill(self, name: str, values: Tensor) -> None:
        """Keep this rank's partition of the values of a parameter, or all those of a buffer. Raises ModelRefused."""
        if name in self._buffers:
            self._buffers[name].copy_(values)
            return
        parameter = self._parameters[name]
        if values.shape != parameter.shape:
            raise ModelRefused(
                f"{name} has the shape {tuple(values.shape)} in the model's files and {tuple(parameter.shape)} by its "
                "config.json"
            )
        uses = self._uses.pop(parameter, ())
        if uses:  # else it is tied to one that was filled before
            partitioned = self._partition(parameter, values)
            for module, own_name in uses:
                setattr(module, own_name, partitioned)

    def require_all(self, folder: Path) -> None:
        """Raise ModelRefused unless every parameter was filled."""
        missing = [name for name, parameter in self._parameters.items() if parameter in self._uses]
        if missing:
            others = f" and {len(missing) - _NUM_NAMED} others" if len(missing) > _NUM_NAMED else ""
            raise ModelRefused(f"{folder} has no values for {', '.join(missing[:_NUM_NAMED])}{others}")

    def _partition(self, like: nn.Parameter, values: Tensor) -> nn.Parameter:
        # Memory that is never written to takes no space, so the parameter is never there as a whole.
        parameter = nn.Parameter(torch.empty(like.shape, dtype=like.dtype), requires_grad=like.requires_grad)
        self._init._convert_to_deepspeed_param(parameter)
        parameter.partition()  # type: ignore[attr-defined]
        partition: Tensor = parameter.ds_tensor  # type: ignore[attr-defined]
        start = partition.numel() * parameter.ds_zero_partition_rank  # type: ignore[attr-defined]
        own = values.reshape(-1)[start : start + partition.numel()]
        partition[: own.numel()].copy_(own)
        partition[own.numel() :].zero_()  # behind the end of the last rank's partition
        parameter.data = torch.empty(0, dtype=like.dtype, device=self._device)
        return parameter


@contextmanager
def _parameters_without_values() -> Iterator[None]:
    """A context in which new modules have parameters on the meta device, and buffers with their values."""
    register = nn.Module.register_parameter

    def register_empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_empty  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _config(folder: Path) -> Any:
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
