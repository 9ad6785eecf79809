"""Metrics of a step besides its loss: of its batch, its time, its speed and its update.

Names are those of docs/metrics.md. A statistic without anything behind it is absent, not zero.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from seamlessflow.core.batching.format import Batch
from seamlessflow_workers.train.step.micro_batches import TrainPlan

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Stopwatch:
    """Seconds by part; parts may recur. On CUDA a part ends when its kernels have."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started_s


def batch_metrics(batch: Batch, plan: TrainPlan) -> dict[str, float]:
    """Return the metrics that the batch brought, and those of the plan made from it."""
    metrics = {
        **batch.header.metrics,
        "reward/mean": batch.header.reward_mean,
        "reward/std": batch.header.reward_std,
        "train/num_tokens": float(plan.num_tokens),
        "train/num_linear_tokens": float(plan.num_linear_tokens),
        "train/num_computed_tokens": float(sum(micro.token_ids.size for micro in plan.micro_batches)),
        "train/num_measured_tokens": float(sum(micro.token_ids.size for micro in plan.measured)),
        "train/num_micro_batches": float(len(plan.micro_batches)),
        "train/num_trained_tokens": float(plan.num_trained_tokens),
        "train/num_stale_samples": float(plan.num_stale_samples),
        "train/num_stale_tokens": float(plan.num_stale_tokens),
    }
    if plan.staleness_mean is not None and plan.staleness_max is not None:
        metrics["train/staleness_mean"] = plan.staleness_mean
        metrics["train/staleness_max"] = float(plan.staleness_max)
    return metrics | _advantage_metrics(batch)


def _advantage_metrics(batch: Batch) -> dict[str, float]:
    """Over the tokens that the batch trains; where branches share a token, over the sum of its parts."""
    is_trained = batch.loss_mask != 0
    advantages = (batch.advantages_positive + batch.advantages_negative)[is_trained].astype(np.float64)
    if not len(advantages):
        return {}
    return {
        "train/advantage_mean": float(advantages.mean()),
        "train/advantage_std": float(advantages.std()),
        "train/advantage_min": float(advantages.min()),
        "train/advantage_max": float(advantages.max()),
    }


def update_metrics(grad_norm: float) -> dict[str, float]:
    """Of the norm before clipping; one that is not finite says that the update was left out."""
    is_skipped = not math.isfinite(grad_norm)
    if is_skipped:
        logger.warning(
            "the gradient is not finite (norm %s): weights and optimizer stay as they are", grad_norm
        )
    return {"train/grad_norm": grad_norm, "train/update_skipped": float(is_skipped)}


def speeds(plan: TrainPlan, watch: Stopwatch) -> dict[str, float]:
    """Tokens per second of the step and of its parts, over the tokens that were computed."""
    num_inputs = sum(int(micro_batch.token_ids.size) for micro_batch in plan.micro_batches)
    if not num_inputs:
        return {}
    parts = {name: watch.seconds[name] for name in ("forward", "backward", "step") if watch.seconds.get(name)}
    return {
        **{f"perf/train_{name}_tokens_per_s": num_inputs / seconds for name, seconds in parts.items()},
        "perf/trained_tokens_per_s": plan.num_trained_tokens / parts["step"],
    }
