"""Experts spread over ranks (expert parallelism): how DeepSpeed's AutoEP is asked for it, and how they are read again.

AutoEP replaces each block of experts by a layer that has E/n of its E experts on each of n ranks, and sends tokens to
the rank of their expert and back. This module takes the job's spec and returns DeepSpeed's settings. Once DeepSpeed has
replaced the blocks, it gives their weights the names that the model had for them, so the published names do not depend
on the number of ranks. All ranks of a group read a weight together.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.state.owned import ShardOf
from seamlessflow_workers.train.step.process_group import AutoEPMoELayer, configure_moe_param_groups
from seamlessflow_workers.weights.naming import ParameterView, Shape

# Of the blocks in `train.step.policy.Policy`, which wraps the model.
_BLOCKS = r"model\.model\.layers\.\d+\.mlp"

MakeOptimizer = Callable[[Iterable[Any]], torch.optim.Optimizer]


def expert_settings(spec: JobSpec, device: torch.device) -> dict[str, Any]:
    """Return what DeepSpeed's configuration says about experts: nothing, if every rank has all of them."""
    if spec.train.parallel.expert == 1:
        return {}
    return {
        "expert_parallel": {
            "enabled": True,
            "autoep_size": spec.train.parallel.expert,
            "moe_layer_pattern": _BLOCKS,
            "use_grouped_mm": device.type == "cuda",
        }
    }


def grouped_by_experts(make: MakeOptimizer) -> MakeOptimizer:
    """Return what DeepSpeed calls after it has replaced the blocks, to make an optimizer of the new parameters.

    Experts are in groups of their own, because their gradients are summed over other ranks than all others.
    """
    return lambda parameters: make(configure_moe_param_groups(list(parameters)))


def expert_shards(model: nn.Module) -> dict[Tensor, ShardOf]:
    """Return this rank's parameters of spread experts, each with its position among all experts."""
    blocks = [block for block in model.modules() if isinstance(block, AutoEPMoELayer)]
    return {
        weight: _shard_of(block, weight)
        for block in blocks
        for weight in block.experts.parameters(recurse=False)
    }


def _shard_of(block: Any, weight: Tensor) -> ShardOf:
    num_local, *expert = getattr(weight, "ds_shape", weight.shape)
    size = math.prod(expert)
    return ShardOf((block.num_experts, *expert), start=block.ep_rank * num_local * size)


@dataclass(frozen=True, slots=True)
class SpreadExperts:
    """A stacked parameter of which each rank of `group` has some experts."""

    shape: Shape  # of the whole: [E, rows of an expert, columns]
    projections: tuple[
        Tensor, ...
    ]  # of an expert, one below the other: gate and up, or down; [E/n, rows, columns] here
    group: ProcessGroup

    @property
    def dtype(self) -> torch.dtype:
        return self.projections[0].dtype

    def element_size(self) -> int:
        return self.projections[0].element_size()

    def fetch(self, view: ParameterView) -> Tensor:
        """Return a view's values on every rank of the group, all of which must ask for it, with their shards
        gathered."""
        assert view.expert is not None
        projection = self.projections[view.begin // view.shape[0]]
        owner, local = divmod(view.expert, len(projection))
        is_own = self.group.rank() == owner
        values = projection[local].detach().clone() if is_own else projection.new_empty(view.shape)
        torch.distributed.broadcast(values, group=self.group, group_src=owner)
        return values


def named_as_in_model(tensors: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor | SpreadExperts]:
    """Return parameters and buffers of a model, after its blocks were replaced, by the names that it had before."""
    found: dict[str, Tensor | SpreadExperts] = dict(tensors)
    for prefix, block in model.named_modules():
        if not isinstance(block, AutoEPMoELayer):
            continue
        gate, up, down = (tensors[f"{prefix}.experts.{projection}"] for projection in ("w1", "w3", "w2"))
        for name in (
            name for name in tensors if name.startswith((f"{prefix}.experts.", f"{prefix}.router."))
        ):
            tensor = found.pop(name)
            if name.startswith(f"{prefix}.router."):  # router.gate.weight, router.e_score_correction_bias
                found[f"{prefix}.gate.{name.rsplit('.', 1)[-1]}"] = tensor
        for kind, projections in (("gate_up_proj", (gate, up)), ("down_proj", (down,))):
            found[f"{prefix}.experts.{kind}"] = _spread(block, projections)
    return found


def _spread(block: Any, projections: tuple[Tensor, ...]) -> SpreadExperts:
    _, height, width = getattr(projections[0], "ds_shape", projections[0].shape)
    return SpreadExperts((block.num_experts, height * len(projections), width), projections, block.ep_group)
