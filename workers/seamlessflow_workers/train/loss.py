"""The GRPO token loss on tensors, equal in value and gradient to `core.algorithms.reference_loss`.

`TokenLoss` is what one micro-batch contributes: the differentiable loss, already divided by the weight of the
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
    advantages_positive: Tensor  # A⁺ and A⁻ of `core.algorithms.tree_weights`
    advantages_negative: Tensor
    loss_weights: Tensor
    is_current: Tensor  # bool: sampled by the very weights that are being trained
    reference_logprobs: Tensor | None = None


def token_loss(
    logprobs: Tensor, targets: TokenTargets, algorithm: AlgorithmSection, *, loss_weight: float
) -> Tensor:
    """Scalar loss of N tokens over the batch's `loss_weight`; `reference_loss` has the formula and its sources."""
    ratio = torch.exp(logprobs - targets.behaviour_logprobs)
    clipped = ratio.clamp(1.0 - algorithm.clip_low, 1.0 + algorithm.clip_high)
    loss = torch.zeros_like(ratio)
    for advantages in (targets.advantages_positive, targets.advantages_negative):
        loss = loss - torch.minimum(ratio * advantages, clipped * advantages)
    if targets.reference_logprobs is not None:
        difference = targets.reference_logprobs - logprobs
        loss = loss + algorithm.kl_coef * targets.loss_weights * (torch.expm1(difference) - difference)
    return loss.sum() / loss_weight


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
        ratio = log_ratio.exp()
        mismatch = log_ratio.abs()[targets.is_current]
        sums = {
            "entropy": entropies.double().sum(),
            "kl": -log_ratio.sum(),
            "ratio": ratio.sum(),
            "ratio_squared": ratio.square().sum(),
            "clipped_low": (
                (ratio < 1.0 - self.algorithm.clip_low) & (targets.advantages_negative < 0)
            ).sum(),
            "clipped_high": (
                (ratio > 1.0 + self.algorithm.clip_high) & (targets.advantages_positive > 0)
            ).sum(),
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
