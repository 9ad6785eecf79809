"""The GRPO token loss on tensors, equal in value and gradient to `core.algorithms.reference_loss`.

`TokenLoss` is what one micro-batch contributes: the differentiable loss, already divided by the trained tokens of the
whole batch, and sums from which `StepStatistics` makes the metrics of the step.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from seamlessflow.core.job_spec import AlgorithmSection


@dataclass(frozen=True, slots=True)
class TokenTargets:
    """Facts about the N trained tokens of a micro-batch, [N] each."""

    behaviour_logprobs: Tensor
    advantages: Tensor
    is_current: Tensor  # bool: sampled by the very weights that are being trained
    reference_logprobs: Tensor | None = None


def token_loss(
    logprobs: Tensor, targets: TokenTargets, algorithm: AlgorithmSection, *, num_trained_tokens: int
) -> Tensor:
    """Scalar loss of N tokens; `reference_loss` has the formula and its sources."""
    ratio = torch.exp(logprobs - targets.behaviour_logprobs)
    clipped = ratio.clamp(1.0 - algorithm.clip_low, 1.0 + algorithm.clip_high)
    loss = -torch.minimum(ratio * targets.advantages, clipped * targets.advantages)
    if targets.reference_logprobs is not None:
        difference = targets.reference_logprobs - logprobs
        loss = loss + algorithm.kl_coef * (torch.expm1(difference) - difference)
    return loss.sum() / num_trained_tokens


@dataclass(slots=True)
class StepStatistics:
    """Sums over the micro-batches of one step. A statistic without a token behind it is absent, not zero."""

    algorithm: AlgorithmSection
    num_tokens: int = 0
    num_current: int = 0
    loss: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    ratio_max: float = 0.0
    mismatch_max: float = 0.0

    @torch.no_grad()
    def add(self, *, loss: Tensor, logprobs: Tensor, entropies: Tensor, targets: TokenTargets) -> None:
        log_ratio = (logprobs - targets.behaviour_logprobs).double()
        ratio, advantages = log_ratio.exp(), targets.advantages
        mismatch = log_ratio.abs()[targets.is_current]
        sums = {
            "entropy": entropies.double().sum(),
            "kl": -log_ratio.sum(),
            "ratio": ratio.sum(),
            "ratio_squared": ratio.square().sum(),
            "clipped_low": ((ratio < 1.0 - self.algorithm.clip_low) & (advantages < 0)).sum(),
            "clipped_high": ((ratio > 1.0 + self.algorithm.clip_high) & (advantages > 0)).sum(),
            "mismatch": mismatch.sum(),
        }
        if targets.reference_logprobs is not None:
            difference = (targets.reference_logprobs - logprobs).double()
            sums["kl_reference"] = (torch.expm1(difference) - difference).sum()
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
        self.loss += float(loss.detach())
        self.num_tokens += len(logprobs)
        self.num_current += len(mismatch)
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        if len(mismatch):
            self.mismatch_max = max(self.mismatch_max, float(mismatch.max()))

    def metrics(self) -> dict[str, float]:
        """Means over the tokens that were computed, under the names of the metric catalogue."""
        if not self.num_tokens:
            return {}
        mean = {name: value / self.num_tokens for name, value in self.sums.items()}
        named = {
            "train/loss": self.loss,
            "train/entropy": mean["entropy"],
            "train/kl_behaviour": mean["kl"],
            "train/clip_fraction_low": mean["clipped_low"],
            "train/clip_fraction_high": mean["clipped_high"],
            "train/ratio_mean": mean["ratio"],
            "train/ratio_max": self.ratio_max,
            "train/ess": mean["ratio"] ** 2 / mean["ratio_squared"],
        }
        if "kl_reference" in mean:
            named["train/kl_reference"] = mean["kl_reference"]
        if self.num_current:
            named["train/mismatch_mean"] = self.sums["mismatch"] / self.num_current
            named["train/mismatch_max"] = self.mismatch_max
        return named
