"""Metrics of a step: of its batch, its tokens, its time, its speed and its update.

`StepStatistics` sums over micro-batches and ranks, detached from the graph, and returns means. Names are those of
docs/metrics.md. A statistic is absent, not zero, if no token contributed to it.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import numpy as np
import torch
from torch import Tensor

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.format import Batch
from seamlessflow_workers.train.step.guide_masks import FREE, BatchMasks
from seamlessflow_workers.train.step.loss import LossOutput, TokenTerms, bounded
from seamlessflow_workers.train.step.micro_batches import TrainPlan

logger = logging.getLogger(__name__)

Totals = tuple[dict[str, float], dict[str, float], dict[str, float]]  # counts, sums, maxima


@dataclass(slots=True)
class Stopwatch:
    """Seconds by timer; a timer may run several times. On CUDA it stops when its kernels have ended."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timer(self, name: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started_s


def batch_metrics(batch: Batch, plan: TrainPlan) -> dict[str, float]:
    """Return the metrics that came with the batch, and those of the plan made from it."""
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


def mask_metrics(batch: Batch, masks: BatchMasks) -> dict[str, float]:
    """Return metrics of a batch with guided answers, from which the unknown tokens were taken out."""
    return {
        "train/num_guided_tokens": float(((masks.rows != FREE) & (batch.loss_mask != 0)).sum()),
        "train/num_unknown_mask_tokens": float(masks.is_unknown.sum()),
    }


def _advantage_metrics(batch: Batch) -> dict[str, float]:
    """Return metrics of the advantages of trained tokens; a token of several branches counts with its sum."""
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


def update_metrics(grad_norms: Sequence[float]) -> dict[str, float]:
    """Return the metrics of each optimizer step's norm before clipping. If one is not finite, its step was skipped."""
    if not grad_norms:
        return {}
    finite = [norm for norm in grad_norms if math.isfinite(norm)]
    for norm in grad_norms:
        if not math.isfinite(norm):
            logger.warning("a gradient is not finite (norm %s); weights and optimizer are unchanged", norm)
    return {
        "train/grad_norm": float(np.mean(finite or grad_norms)),
        "train/update_skipped": 1.0 - len(finite) / len(grad_norms),
        "train/num_optimizer_steps": float(len(finite)),
    }


def last_step_metrics(statistics: "StepStatistics") -> dict[str, float]:
    """Return how far the policy has gone in the last of several optimizer steps of a batch."""
    metrics = statistics.metrics()
    names = {"train/clip_fraction": "train/clip_fraction_last", "train/kl_start": "train/kl_start_last"}
    return {last: metrics[name] for name, last in names.items() if name in metrics}


def speeds(plan: TrainPlan, watch: Stopwatch, *, num_epochs: int) -> dict[str, float]:
    """Return computed tokens per second, of the step and of its passes."""
    num_inputs = num_epochs * sum(int(micro_batch.token_ids.size) for micro_batch in plan.micro_batches)
    if not num_inputs:
        return {}
    pass_seconds = {
        name: watch.seconds[name] for name in ("forward", "backward", "step") if watch.seconds.get(name)
    }
    return {
        **{f"perf/train_{name}_tokens_per_s": num_inputs / seconds for name, seconds in pass_seconds.items()},
        "perf/trained_tokens_per_s": plan.num_trained_tokens / pass_seconds["step"],
    }


@dataclass(slots=True)
class StepStatistics:
    """Sums over the micro-batches of a batch, or of one of its optimizer steps."""

    algorithm: AlgorithmSection
    has_sampler: bool = (
        True  # false: policies of other jobs sampled the tokens, and nothing is compared with them
    )
    num_tokens: float = 0.0
    num_current: float = 0.0
    num_sequences: float = 0.0
    loss: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)

    @torch.no_grad()
    def add(
        self,
        *,
        logprobs: Tensor,
        entropies: Tensor,
        terms: TokenTerms,
        output: LossOutput,
        weight: float = 1.0,
        loss_weight: float = 1.0,
        current_weight: float | None = None,
    ) -> None:
        """Add a micro-batch; all tensors are [N].

        Each token counts `weight` times, but its loss `loss_weight` times, and its mismatch, if the sampler had
        exactly the weights of this pass, `current_weight` times (default: `weight`).
        """
        log_ratio = (logprobs - terms.behaviour_logprobs).double()
        ratio = bounded(log_ratio).exp()
        sums = {
            "entropy": entropies.double().sum(),
            "kl": -log_ratio.sum(),
            "kl_k3": _k3(log_ratio).sum(),
            "ratio": ratio.sum(),
            "ratio_squared": ratio.square().sum(),
            "weight": output.weights.double().sum(),
            "weight_cut": (output.weights > self.algorithm.off_policy.importance_max).sum(),
            "masked": (output.kept == 0).sum(),
            **self._clipped(output.ratios, terms),
            **_sequence_sums(log_ratio, terms),
        }
        if output.kl_reference is not None:
            sums["kl_reference"] = output.kl_reference.double().sum()
        if terms.start_logprobs is not None:
            from_start = (logprobs - terms.start_logprobs).double()
            sums |= {"kl_start": -from_start.sum(), "kl_start_k3": _k3(from_start).sum()}
        self._accumulate(sums, {"ratio": ratio, "weight": output.weights}, weight)
        self.loss += loss_weight * float(output.loss.detach())
        self.num_tokens += weight * len(logprobs)
        self.num_sequences += weight * terms.num_sequences
        self.add_mismatch(log_ratio[terms.is_current], weight if current_weight is None else current_weight)

    @torch.no_grad()
    def add_mismatch(self, log_ratio: Tensor, weight: float = 1.0) -> None:
        """Add M tokens sampled by exactly the weights of this step: trainer's minus sampler's logprobs, [M]."""
        log_ratio = log_ratio.double()
        mismatch = log_ratio.abs()
        sums = {"mismatch": mismatch.sum(), "mismatch_kl": _k3(log_ratio).sum()}
        self._accumulate(sums, {"mismatch": mismatch}, weight)
        self.num_current += weight * len(mismatch)

    def totals(self) -> Totals:
        """Return all sums, to be added to those of other ranks."""
        counts = {"loss": self.loss, "tokens": self.num_tokens, "current": self.num_current}
        return {**counts, "sequences": self.num_sequences}, self.sums, self.maxima

    def add_totals(self, totals: Totals) -> None:
        counts, sums, maxima = totals
        self.loss += counts["loss"]
        self.num_tokens += counts["tokens"]
        self.num_current += counts["current"]
        self.num_sequences += counts["sequences"]
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0.0), value)

    def metrics(self) -> dict[str, float]:
        """Return means over the computed tokens."""
        return {**self._of_training(), **self._of_mismatch()}

    def _accumulate(self, sums: Mapping[str, Tensor], maxima: Mapping[str, Tensor], weight: float) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + weight * float(value)
        for name, values in maxima.items():
            if len(values):
                self.maxima[name] = max(self.maxima.get(name, 0.0), float(values.max()))

    def _of_mismatch(self) -> dict[str, float]:
        if not self.num_current:
            return {}
        return {
            "train/mismatch_mean": self.sums["mismatch"] / self.num_current,
            "train/mismatch_max": self.maxima["mismatch"],
            "train/mismatch_kl": self.sums["mismatch_kl"] / self.num_current,
        }

    def _of_training(self) -> dict[str, float]:
        if not self.num_tokens:
            return {}
        mean = {name: value / self.num_tokens for name, value in self.sums.items()}
        named = {"train/loss": self.loss, "train/entropy": mean["entropy"]}
        if "kl_reference" in mean:
            named["train/kl_reference"] = mean["kl_reference"]
        return named | self._of_sampler(mean) if self.has_sampler else named

    def _of_sampler(self, mean: Mapping[str, float]) -> dict[str, float]:
        """Return how far the policy is from the one that sampled."""
        named = {
            "train/kl_behaviour": mean["kl"],
            "train/kl_behaviour_k3": mean["kl_k3"],
            "train/clip_fraction": mean["clipped_low"] + mean["clipped_high"] + mean["clipped_dual"],
            "train/clip_fraction_low": mean["clipped_low"],
            "train/clip_fraction_high": mean["clipped_high"],
            "train/ratio_mean": mean["ratio"],
            "train/ratio_max": self.maxima["ratio"],
            "train/ess": mean["ratio"] ** 2 / mean["ratio_squared"],
            "train/ess_sequence": self.sums["sequence"] ** 2
            / (self.num_sequences * self.sums["sequence_squared"]),
        }
        if self.algorithm.dual_clip is not None:
            named["train/clip_fraction_dual"] = mean["clipped_dual"]
        if self.algorithm.off_policy.proximal != "behaviour":
            named["train/importance_mean"] = mean["weight"]
            named["train/importance_max"] = self.maxima["weight"]
            named["train/importance_cut_fraction"] = mean["weight_cut"]
            named["train/importance_masked_fraction"] = mean["masked"]
        if "kl_start" in mean:
            named["train/kl_start"] = mean["kl_start"]
            named["train/kl_start_k3"] = mean["kl_start_k3"]
        return named

    def _clipped(self, ratios: Tensor, terms: TokenTerms) -> dict[str, Tensor]:
        """Count tokens whose ratio is clipped; a token with advantages of both signs may count on both sides."""
        algorithm = self.algorithm
        dual = ratios.new_zeros(()) if algorithm.dual_clip is None else ratios > algorithm.dual_clip
        return {
            "clipped_low": ((ratios < 1.0 - algorithm.clip_low) & (terms.advantages_negative < 0)).sum(),
            "clipped_high": ((ratios > 1.0 + algorithm.clip_high) & (terms.advantages_positive > 0)).sum(),
            "clipped_dual": (dual * (terms.advantages_negative < 0)).sum(),
        }


def _k3(log_ratio: Tensor) -> Tensor:
    log_ratio = bounded(log_ratio)
    return torch.expm1(log_ratio) - log_ratio


def _sequence_sums(log_ratio: Tensor, terms: TokenTerms) -> dict[str, Tensor]:
    """Return sums over the sequences' geometric mean ratios, for their effective sample size."""
    sums = log_ratio.new_zeros(terms.num_sequences).index_add(0, terms.sequences, log_ratio)
    lengths = torch.bincount(terms.sequences, minlength=terms.num_sequences).clamp(min=1)
    ratio = bounded(sums / lengths).exp()
    return {"sequence": ratio.sum(), "sequence_squared": ratio.square().sum()}


def statistics_of_all_ranks(statistics: StepStatistics, device: torch.device) -> StepStatistics:
    """Return sums and maxima over the process group, exchanged on `device`. Every rank must call it."""
    num_ranks = torch.distributed.get_world_size()
    if num_ranks == 1:
        return statistics
    whole = StepStatistics(statistics.algorithm, has_sampler=statistics.has_sampler)
    for raw in _bytes_of_all_ranks(msgspec.msgpack.encode(statistics.totals()), device):
        whole.add_totals(msgspec.msgpack.decode(raw, type=Totals))
    return whole


def _bytes_of_all_ranks(raw: bytes, device: torch.device) -> list[bytes]:
    """Return what each rank passed, in the order of ranks; lengths may differ."""
    num_ranks = torch.distributed.get_world_size()
    own_length = torch.tensor([len(raw)], device=device)
    lengths = [torch.zeros_like(own_length) for _ in range(num_ranks)]
    torch.distributed.all_gather(lengths, own_length)
    num_padded = max(int(length) for length in lengths)
    padded = torch.frombuffer(bytearray(raw.ljust(num_padded, b"\0")), dtype=torch.uint8).to(device)
    gathered = [torch.empty_like(padded) for _ in range(num_ranks)]
    torch.distributed.all_gather(gathered, padded)
    return [
        tensor.cpu().numpy().tobytes()[: int(length)]
        for tensor, length in zip(gathered, lengths, strict=True)
    ]
