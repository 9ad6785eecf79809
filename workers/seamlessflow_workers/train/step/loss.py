"""The policy loss on tensors, equal in value and gradient to `tests.oracles.reference_loss`.

It takes logprobs (and entropies) of the trained tokens of a micro-batch and data about them, with the denominators
already folded into advantages and weights (`core.algorithms.aggregation`). It returns a scalar: this micro-batch's
term of its mini-batch's loss. The terms of all micro-batches of all ranks add up to that loss.

A token that belongs to several branches (a tree's shared node) carries the sums of its positive and its negative
advantages: for the clip objective min(ρA⁺, clip(ρ)A⁺) + min(ρA⁻, clip(ρ)A⁻) is exact, whereas a single advantage would
not be.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seamlessflow.core.algorithms.options import (
    MAX_LOG_RATIO,
    ImportanceRule,
    KlEstimator,
    KlPlacement,
    Objective,
    ProximalPolicy,
    RatioLevel,
)
from seamlessflow.core.algorithms.section import AlgorithmSection


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """Data about the N trained tokens of a micro-batch, [N] each.

    With c the coefficient of a token in a branch and A its advantage there: `advantages_positive` = Σ c·max(A, 0),
    `advantages_negative` = Σ c·min(A, 0), `loss_weights` = Σ c over its branches (one, except in trees).
    """

    behaviour_logprobs: Tensor
    advantages_positive: Tensor
    advantages_negative: Tensor
    loss_weights: Tensor  # of KL and entropy
    sequences: Tensor  # int64: which of the micro-batch's `num_sequences` samples; sequence ratios need whole samples
    num_sequences: int
    is_current: Tensor  # bool: sampled by exactly the weights that are being trained
    reference_logprobs: Tensor | None = None
    start_logprobs: Tensor | None = (
        None  # of the weights at the start of the batch; None: of the ones being trained
    )


@dataclass(frozen=True, slots=True)
class LossOutput:
    """The loss and, detached, the inputs of metrics; ratios and weights are [N], after the mean of their level."""

    loss: Tensor  # scalar with a gradient
    ratios: Tensor  # π / π_proximal
    weights: Tensor  # importance weights before their rule
    kept: Tensor  # importance weights as applied
    kl_reference: Tensor | None


def policy_loss(
    logprobs: Tensor, terms: TokenTerms, algorithm: AlgorithmSection, *, entropies: Tensor | None = None
) -> LossOutput:
    """Return this micro-batch's term of the loss. `entropies` [N] carry a gradient and are needed only with
    entropy_coef."""
    proximal = _proximal_logprobs(logprobs, terms, algorithm)
    log_ratio = bounded(_by_level(logprobs - proximal, terms, algorithm.ratio))
    with torch.no_grad():
        log_weights = proximal - terms.behaviour_logprobs
        weights = bounded(_by_level(log_weights, terms, algorithm.off_policy.importance_level)).exp()
        kept = _kept_weights(weights, algorithm)
    loss = -(kept * _objective(log_ratio.exp(), logprobs, terms, algorithm)).sum()
    kl = None
    if terms.reference_logprobs is not None:
        kl = kl_estimate(terms.reference_logprobs - logprobs, algorithm.kl_estimator)
        if algorithm.kl_placement is KlPlacement.LOSS:
            loss = loss + algorithm.kl_coef * (terms.loss_weights * kl).sum()
    if algorithm.entropy_coef:
        assert entropies is not None
        loss = loss - algorithm.entropy_coef * (terms.loss_weights * entropies).sum()
    return LossOutput(
        loss=loss,
        ratios=log_ratio.detach().exp(),
        weights=weights,
        kept=kept,
        kl_reference=None if kl is None else kl.detach(),
    )


def _proximal_logprobs(logprobs: Tensor, terms: TokenTerms, algorithm: AlgorithmSection) -> Tensor:
    if algorithm.off_policy.proximal is ProximalPolicy.BEHAVIOUR:
        return terms.behaviour_logprobs
    # In the first optimizer step of a batch, the logprobs of the weights that it starts from are those of this pass.
    return logprobs.detach() if terms.start_logprobs is None else terms.start_logprobs


def kl_estimate(difference: Tensor, estimator: KlEstimator) -> Tensor:
    """Return KL(policy ‖ reference) per token, [N], from difference = reference - logprob."""
    match estimator:
        case KlEstimator.K1:
            return -difference
        case KlEstimator.K2:
            return difference.square() / 2
        case KlEstimator.K3:
            difference = bounded(difference)
            return torch.expm1(difference) - difference


def bounded(log_ratio: Tensor) -> Tensor:
    """Clamp log ratios before exponentiation, because infinity times a gradient of zero is NaN."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _objective(ratio: Tensor, logprobs: Tensor, terms: TokenTerms, algorithm: AlgorithmSection) -> Tensor:
    low, high = 1.0 - algorithm.clip_low, 1.0 + algorithm.clip_high
    both = terms.advantages_positive + terms.advantages_negative
    match algorithm.objective:
        case Objective.POLICY_GRADIENT:
            return both * logprobs
        case Objective.CISPO:
            return ratio.detach().clamp(low, high) * both * logprobs
        case Objective.CLIP:
            pushed_up = (
                ratio.clamp(max=high) * terms.advantages_positive
            )  # below `low` the minimum takes the ratio itself
            against = ratio.clamp(min=low)
            if algorithm.dual_clip is not None:
                against = against.clamp(max=algorithm.dual_clip)
            return pushed_up + against * terms.advantages_negative


def _by_level(values: Tensor, terms: TokenTerms, level: RatioLevel) -> Tensor:
    """Return the values per token, or for each token the sum or mean over its sequence, [N]."""
    if level is RatioLevel.TOKEN:
        return values
    sums = values.new_zeros(terms.num_sequences).index_add(0, terms.sequences, values)
    if level is RatioLevel.SEQUENCE_MEAN:
        sums = sums / torch.bincount(terms.sequences, minlength=terms.num_sequences).clamp(min=1)
    return sums[terms.sequences]


def _kept_weights(weights: Tensor, algorithm: AlgorithmSection) -> Tensor:
    """Return weights truncated (TIS) or masked (MIS) by the off-policy rule; ones if it has none."""
    off_policy = algorithm.off_policy
    match off_policy.importance:
        case ImportanceRule.NONE:
            return torch.ones_like(weights)
        case ImportanceRule.TRUNCATE:
            return weights.clamp(max=off_policy.importance_max)
        case ImportanceRule.MASK:
            is_kept = (weights >= off_policy.importance_min) & (weights <= off_policy.importance_max)
            return weights * is_kept
