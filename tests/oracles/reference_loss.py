"""Loss and gradient of every algorithm in plain Python floats, token by token. The tensor loss is tested against it.

It follows the papers' formulas for sequences, not the tensor code: no arrays, no autograd, one loop per term,
denominators computed here. Per token of session s, with ratio r = exp(logprob - proximal) (or the sequence's product /
geometric mean), advantage A and importance weight w = π_proximal / π_behaviour after its rule:

    clip             -w·min(r·A, clip(r, 1 - clip_low, 1 + clip_high)·A), at most dual_clip·|A| where A < 0
    cispo            -w·const(clip(r))·A·logprob
    policy_gradient  -w·A·logprob
    + kl_coef·KL(estimator) - entropy_coef·entropy

Each is multiplied by the token's coefficient of the aggregation. The presets name the sources. Exponents are clamped to
±`MAX_LOG_RATIO` and have no gradient beyond it.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.core.algorithms.options import (
    MAX_LOG_RATIO,
    Aggregation,
    ImportanceRule,
    KlEstimator,
    KlPlacement,
    Objective,
    ProximalPolicy,
    RatioLevel,
)
from seamlessflow.core.algorithms.section import AlgorithmSection


@dataclass(frozen=True, slots=True)
class ReferenceSequence:
    """One sample: lists of equal length, one entry per token; `session` says which samples belong together."""

    session: int
    logprobs: Sequence[float]
    behaviour_logprobs: Sequence[float]
    advantages: Sequence[float]
    is_trained: Sequence[bool]
    reference_logprobs: Sequence[float] | None = None
    proximal_logprobs: Sequence[float] | None = None  # those of the weights at the start of the batch
    entropies: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class ReferenceLoss:
    loss: float
    gradients: list[list[float]]  # d loss / d logprob by sequence and token
    entropy_gradients: list[list[float]]  # d loss / d entropy


def reference_loss(
    sequences: Sequence[ReferenceSequence],
    algorithm: AlgorithmSection,
    *,
    aggregation_constant: float = 1.0,
) -> ReferenceLoss:
    """Return the loss over the trained tokens of a mini-batch. Under `proximal: current`, sequences without
    `proximal_logprobs` are those of the first mini-batch of a batch: their logprobs are also the proximal ones."""
    counts: Counter[int] = Counter()
    for sequence in sequences:
        counts[sequence.session] += sum(sequence.is_trained)
    num_sessions = sum(count > 0 for count in counts.values())
    total, gradients, entropy_gradients = 0.0, [], []
    for sequence in sequences:
        if algorithm.aggregation is Aggregation.TOKEN_MEAN:
            coefficient = 1.0 / max(1, sum(counts.values()))
        elif algorithm.aggregation is Aggregation.SEQUENCE_MEAN:
            coefficient = 1.0 / max(1, num_sessions * counts[sequence.session])
        else:
            coefficient = 1.0 / max(1.0, num_sessions * aggregation_constant)
        value, gradient, entropy_gradient = _sequence_loss(sequence, algorithm, coefficient)
        total += value
        gradients.append(gradient)
        entropy_gradients.append(entropy_gradient)
    return ReferenceLoss(total, gradients, entropy_gradients)


def _sequence_loss(
    sequence: ReferenceSequence, algorithm: AlgorithmSection, coefficient: float
) -> tuple[float, list[float], list[float]]:
    trained = [t for t, is_trained in enumerate(sequence.is_trained) if is_trained]
    num_tokens = len(sequence.logprobs)
    gradient, entropy_gradient, value = [0.0] * num_tokens, [0.0] * num_tokens, 0.0
    if algorithm.off_policy.proximal is ProximalPolicy.BEHAVIOUR:
        proximal = sequence.behaviour_logprobs
    else:
        proximal = sequence.proximal_logprobs or sequence.logprobs
    log_ratios = {t: sequence.logprobs[t] - proximal[t] for t in trained}
    weights = _importance_weights(
        {t: proximal[t] - sequence.behaviour_logprobs[t] for t in trained}, algorithm
    )
    # The log ratio of a token depends on its own logprob, on the sum of all, or on their mean.
    if algorithm.ratio is RatioLevel.TOKEN:
        ratios = {t: _exp(log_ratios[t]) for t in trained}
    else:
        is_mean = algorithm.ratio is RatioLevel.SEQUENCE_MEAN
        log_ratio = sum(log_ratios.values()) / (len(trained) if is_mean and trained else 1)
        log_ratios = dict.fromkeys(trained, log_ratio)
        ratios = dict.fromkeys(trained, _exp(log_ratio))
    scale = 1.0 / len(trained) if algorithm.ratio is RatioLevel.SEQUENCE_MEAN and trained else 1.0
    for t in trained:
        objective, by_log_ratio, by_logprob = _objective(
            ratios[t], sequence.advantages[t], sequence.logprobs[t], algorithm
        )
        by_log_ratio *= abs(log_ratios[t]) <= MAX_LOG_RATIO
        value -= coefficient * weights[t] * objective
        gradient[t] -= coefficient * weights[t] * by_logprob
        if algorithm.ratio is RatioLevel.TOKEN:
            gradient[t] -= coefficient * weights[t] * by_log_ratio
        else:
            for other in trained:
                gradient[other] -= coefficient * weights[t] * by_log_ratio * scale
    if algorithm.kl_coef and algorithm.kl_placement is KlPlacement.LOSS:
        assert sequence.reference_logprobs is not None
        for t in trained:
            kl, slope = reference_kl(
                sequence.reference_logprobs[t] - sequence.logprobs[t], algorithm.kl_estimator
            )
            value += coefficient * algorithm.kl_coef * kl
            gradient[t] += coefficient * algorithm.kl_coef * slope
    if algorithm.entropy_coef:
        assert sequence.entropies is not None
        for t in trained:
            value -= coefficient * algorithm.entropy_coef * sequence.entropies[t]
            entropy_gradient[t] -= coefficient * algorithm.entropy_coef
    return value, gradient, entropy_gradient


def _objective(
    ratio: float, advantage: float, logprob: float, algorithm: AlgorithmSection
) -> tuple[float, float, float]:
    """Return the objective of one token and its derivatives by the log of the ratio and by the logprob itself."""
    low, high = 1.0 - algorithm.clip_low, 1.0 + algorithm.clip_high
    clipped = min(max(ratio, low), high)
    if algorithm.objective is Objective.POLICY_GRADIENT:
        return advantage * logprob, 0.0, advantage
    if algorithm.objective is Objective.CISPO:
        return clipped * advantage * logprob, 0.0, clipped * advantage
    if algorithm.dual_clip is not None and advantage < 0 and ratio > algorithm.dual_clip:
        return algorithm.dual_clip * advantage, 0.0, 0.0
    if ratio * advantage <= clipped * advantage:
        return ratio * advantage, ratio * advantage, 0.0
    return clipped * advantage, 0.0, 0.0


def reference_kl(difference: float, estimator: KlEstimator) -> tuple[float, float]:
    """Estimate KL(policy ‖ reference) from d = reference - logprob; return it and its derivative by the logprob
    (Schulman, Approximating KL divergence, 2020)."""
    if estimator is KlEstimator.K1:
        return -difference, 1.0
    if estimator is KlEstimator.K2:
        return difference * difference / 2.0, -difference
    if abs(difference) > MAX_LOG_RATIO:
        cut = math.copysign(MAX_LOG_RATIO, difference)
        return math.exp(cut) - cut - 1.0, 0.0
    return math.exp(difference) - difference - 1.0, 1.0 - math.exp(difference)


def _exp(log_ratio: float) -> float:
    return math.exp(min(max(log_ratio, -MAX_LOG_RATIO), MAX_LOG_RATIO))


def _importance_weights(log_weights: dict[int, float], algorithm: AlgorithmSection) -> dict[int, float]:
    """Return the constant weights of a sequence's tokens after truncation (TIS) or masking (MIS)."""
    rule, off_policy = algorithm.off_policy.importance, algorithm.off_policy
    if rule is ImportanceRule.NONE or not log_weights:
        return dict.fromkeys(log_weights, 1.0)
    if off_policy.importance_level is RatioLevel.TOKEN:
        weights = {t: _exp(log_weight) for t, log_weight in log_weights.items()}
    else:
        total = sum(log_weights.values())
        is_mean = off_policy.importance_level is RatioLevel.SEQUENCE_MEAN
        weights = dict.fromkeys(log_weights, _exp(total / (len(log_weights) if is_mean else 1)))
    if rule is ImportanceRule.TRUNCATE:
        return {t: min(weight, off_policy.importance_max) for t, weight in weights.items()}
    return {
        t: weight if off_policy.importance_min <= weight <= off_policy.importance_max else 0.0
        for t, weight in weights.items()
    }
