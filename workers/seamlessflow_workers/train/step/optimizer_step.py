"""Makes one optimizer step of a DeepSpeed engine over one rank's micro-batches of a mini-batch.

It takes them and a function that computes each micro-batch's term of the loss, and returns the gradient's norm.
All ranks must call it with equally many micro-batches. A gradient that is not finite leaves weights and optimizer
unchanged.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seamlessflow_workers.train.step.metrics import Stopwatch
from seamlessflow_workers.train.step.micro_batches import MicroBatch


@dataclass(slots=True)
class LocalMicroBatch:
    """A micro-batch of this rank, with what earlier passes of the same batch have found out about its N tokens."""

    micro_batch: MicroBatch
    counts: bool  # false: it is repeated with weights of zero, so that all ranks have equally many
    start_logprobs: Tensor | None = None  # [N] under the weights at the start of the batch
    reference_logprobs: Tensor | None = None  # [N] under the initial policy


def make_optimizer_step(
    engine: Any,
    local_batches: Sequence[LocalMicroBatch],
    loss_of: Callable[[LocalMicroBatch], Tensor],
    watch: Stopwatch,
    *,
    is_plain: bool,
) -> float:
    """Return the gradient's norm before clipping; if it is not finite, the step was skipped.

    `is_plain`: ZeRO 0 in float32, where DeepSpeed neither keeps nor checks the gradient's norm.
    """
    grad_norm: float | None = None
    num_ranks = torch.distributed.get_world_size()
    for number, local in enumerate(local_batches, start=1):
        is_last = number == len(local_batches)
        engine.set_gradient_accumulation_boundary(is_last)
        with watch.timer("forward"):
            loss = loss_of(local)
        with watch.timer("backward"):
            # DeepSpeed averages over all ranks, but the gradient of a mini-batch is the sum of what they contribute:
            # their own micro-batches, or their own tokens of those that several ranks compute.
            engine.backward(loss * num_ranks, scale_wrt_gas=False)
        with watch.timer("optimizer"):
            if is_last and is_plain:
                grad_norm = _plain_grad_norm(engine)
                if not math.isfinite(grad_norm):
                    engine.zero_grad()
                    engine.set_gradient_accumulation_boundary(False)
            engine.step()
    return float(engine.get_global_grad_norm()) if grad_norm is None else grad_norm


def _plain_grad_norm(engine: Any) -> float:
    gradients = [p.grad for p in engine.module.parameters() if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))
