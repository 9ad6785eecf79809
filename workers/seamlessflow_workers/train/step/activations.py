"""What a policy's layers keep between forward and backward pass.

With checkpoints a layer keeps only its input and is computed again in the backward pass (arXiv 1604.06174); these
inputs can wait in the host's memory. Neither changes a number.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from transformers.modeling_layers import GradientCheckpointingLayer


def checkpoints_enable(model: nn.Module, *, is_on_host: bool) -> None:
    """Make the layers of `model` keep only their inputs, in the host's memory if asked for."""
    model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    if is_on_host:
        layer: Any
        for layer in checkpointed_layers(model):
            layer._gradient_checkpointing_func = partial(
                _with_inputs_on_host, layer._gradient_checkpointing_func
            )


def checkpointed_layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _with_inputs_on_host(checkpoint: Callable[..., Any], function: Callable[..., Any], *inputs: Any) -> Any:
    """Call a layer by `checkpoint`, which saves its inputs under these hooks and its inside under its own."""
    with save_on_cpu(pin_memory=torch.cuda.is_available()):
        return checkpoint(function, *inputs)
