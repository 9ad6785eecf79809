"""What a trainer publishes: its weights or its adapter's, by the names that engines know, in layouts and bytes.

It takes the policy, which DeepSpeed may have partitioned, and the names in the model folder. Weights are named as the
folder names them (`weights.naming`), so a stacked parameter of experts becomes a tensor for each expert; bytes are put
together only for the names that are asked for. Invariants: an output head that is tied to the embeddings is published
as well, since engines keep copies of it; so are buffers that belong to the model (a router's correction), because
without them an engine would route otherwise.
"""

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from seamlessflow.core.model_tensors import is_beside_model
from seamlessflow_workers.train.step.expert_ranks import SpreadExperts, named_as_in_model
from seamlessflow_workers.train.step.policy import Policy
from seamlessflow_workers.train.step.process_group import deepspeed
from seamlessflow_workers.weights.naming import ParameterView, parameter_views
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout

logger = logging.getLogger(__name__)

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}  # in the words of safetensors


class PublishedTensors:
    """The tensors of one policy. Make it once the policy has its final parameters."""

    def __init__(self, policy: Policy, folder_names: Collection[str]) -> None:
        """`folder_names`: the tensors of the model folder."""
        self._sources: dict[str, Tensor | SpreadExperts] = (
            _weights(policy) if policy.adapter is None else dict(policy.adapter.tensors())
        )
        shapes = {name: _shape(tensor) for name, tensor in self._sources.items()}
        # An adapter has peft's own names.
        names = folder_names if policy.adapter is None else shapes
        self._views = parameter_views(shapes, names)
        _tell_left_out(policy, folder_names)

    def layouts(self) -> Mapping[str, TensorLayout]:
        return {name: self._layout(view) for name, view in self._views.items()}

    def tensors(self, names: Sequence[str] | None = None, *, keeps: bool = True) -> dict[str, RawTensor]:
        """Return some tensors, or all, with their values. All ranks must ask for the same.

        Under ZeRO-3 only their own parameters are gathered, and experts come from the ranks that have
        them. Without `keeps` this rank only helps the others.
        """
        wanted = {name: self._views[name] for name in (self._views if names is None else names)}
        sources = {view.parameter: self._sources[view.parameter] for view in wanted.values()}
        with deepspeed.zero.GatheredParameters(list(_tensors_of(sources.values())), modifier_rank=None):
            values = {name: _values(sources[view.parameter], view) for name, view in wanted.items()}
            return {name: _raw(value) for name, value in values.items()} if keeps else {}

    def _layout(self, view: ParameterView) -> TensorLayout:
        source = self._sources[view.parameter]
        num_bytes = math.prod(view.shape) * source.element_size()
        return TensorLayout(dtype=_DTYPES[source.dtype], shape=view.shape, num_bytes=num_bytes)


def _weights(policy: Policy) -> dict[str, Tensor | SpreadExperts]:
    """Return the model's parameters and buffers by its own names for them."""
    model = policy.model
    found: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(_kept_buffers(model))}
    found.setdefault(policy.head_name, model.get_output_embeddings().weight)  # type: ignore[operator]
    return named_as_in_model(found, model)


def _tensors_of(sources: Iterable[Tensor | SpreadExperts]) -> Iterator[Tensor]:
    for source in sources:
        yield from source.projections if isinstance(source, SpreadExperts) else (source,)


def _values(source: Tensor | SpreadExperts, view: ParameterView) -> Tensor:
    return source.fetch(view) if isinstance(source, SpreadExperts) else view.of(source)


def _kept_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers that a checkpoint of the model would have, as far as they are numbers to compute with."""
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set and buffer.is_floating_point():
                yield f"{prefix}.{name}" if prefix else name, buffer


def _tell_left_out(policy: Policy, folder_names: Collection[str]) -> None:
    config = policy.model.config.get_text_config()  # type: ignore[union-attr,operator]
    num_left_out = sum(is_beside_model(name, num_layers=config.num_hidden_layers) for name in folder_names)
    if num_left_out:
        logger.info(
            "%d tensors of the model folder only predict further tokens (multi-token prediction); they are neither "
            "trained nor published, and an export has them as the folder does",
            num_left_out,
        )


def _shape(tensor: Tensor | SpreadExperts) -> tuple[int, ...]:
    return tuple(getattr(tensor, "ds_shape", tensor.shape))  # set on parameters that ZeRO-3 has partitioned


def _raw(tensor: Tensor) -> RawTensor:
    """Return a copy, because parameters change later and gathered ones disappear."""
    data = tensor.detach().to("cpu", copy=True).contiguous().reshape(-1).view(torch.uint8).numpy()
    return RawTensor(
        dtype=_DTYPES[tensor.dtype], shape=tuple(tensor.shape), data=data.data, num_bytes=data.nbytes
    )
