"""Metrics of one training step: takes sums over micro-batches and returns means under the catalogue's names.

A statistic without a token behind it is absent, not zero. All is detached from the graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow_workers.train.step.loss import LossParts, TokenTerms, bounded

Totals = tuple[dict[str, float], dict[str, float], dict[str, float]]  # counts, sums, maxima


@dataclass(slots=True)
class StepStatistics:
    """Sums over the micro-batches of one step."""

    algorithm: AlgorithmSection
    has_sampler: bool = True  # false: the tokens are of other jobs' policies, with which nothing is compared
    num_tokens: int = 0
    num_current: int = 0
    num_sequences: int = 0
    loss: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)

    @torch.no_grad()
    def add(self, *, logprobs: Tensor, entropies: Tensor, terms: TokenTerms, parts: LossParts) -> None:
        """Add a micro-batch; all tensors are [N]."""
        log_ratio = (logprobs - terms.behaviour_logprobs).double()
        ratio = bounded(log_ratio).exp()
        sums = {
            "entropy": entropies.double().sum(),
            "kl": -log_ratio.sum(),
            "kl_k3": _k3(log_ratio).sum(),
            "ratio": ratio.sum(),
            "ratio_squared": ratio.square().sum(),
            "weight": parts.weights.double().sum(),
            "weight_cut": (parts.weights > self.algorithm.off_policy.importance_max).sum(),
            "masked": (parts.kept == 0).sum(),
            **self._clipped(parts.ratios, terms),
            **_sequence_sums(log_ratio, terms),
        }
        if parts.kl_reference is not None:
            sums["kl_reference"] = parts.kl_reference.double().sum()
        self._accumulate(sums, {"ratio": ratio, "weight": parts.weights})
        self.loss += float(parts.loss.detach())
        self.num_tokens += len(logprobs)
        self.num_sequences += terms.num_sequences
        self.add_mismatch(log_ratio[terms.is_current])

    @torch.no_grad()
    def add_mismatch(self, log_ratio: Tensor) -> None:
        """Trainer's less sampler's logprobs of M tokens that were sampled by the very weights of this step, [M]."""
        log_ratio = log_ratio.double()
        mismatch = log_ratio.abs()
        sums = {"mismatch": mismatch.sum(), "mismatch_kl": _k3(log_ratio).sum()}
        self._accumulate(sums, {"mismatch": mismatch})
        self.num_current += len(mismatch)

    def totals(self) -> Totals:
        """Return all sums, which the caller adds to those of other ranks."""
        counts = {"loss": self.loss, "tokens": self.num_tokens, "current": self.num_current}
        return {**counts, "sequences": self.num_sequences}, self.sums, self.maxima

    def add_totals(self, totals: Totals) -> None:
        counts, sums, maxima = totals
        self.loss += counts["loss"]
        self.num_tokens += int(counts["tokens"])
        self.num_current += int(counts["current"])
        self.num_sequences += int(counts["sequences"])
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0.0), value)

    def metrics(self) -> dict[str, float]:
        """Return means over the tokens that were computed."""
        return {**self._of_training(), **self._of_mismatch()}

    def _accumulate(self, sums: Mapping[str, Tensor], maxima: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
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
        """How far the policy is from the one that sampled."""
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
        return named

    def _clipped(self, ratios: Tensor, terms: TokenTerms) -> dict[str, Tensor]:
        """Tokens whose objective stands at a bound; a token with both signs may count on both sides."""
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
    """Of the sequences' geometric mean ratios, from which their effective sample size follows."""
    sums = log_ratio.new_zeros(terms.num_sequences).index_add(0, terms.sequences, log_ratio)
    lengths = torch.bincount(terms.sequences, minlength=terms.num_sequences).clamp(min=1)
    ratio = bounded(sums / lengths).exp()
    return {"sequence": ratio.sum(), "sequence_squared": ratio.square().sum()}
