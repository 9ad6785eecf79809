"""Advantages from rewards: one per session, or per token where the KL is part of the reward.

The baseline is taken over sessions, never over branches: a session that forked counts once. Rewards that are equal
within a group give advantages of exactly zero (but for the batch-wide estimators), so that a group without contrast is
recognised and skipped.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.options import AdvantageEstimator, AdvantageNorm

Floats = NDArray[np.float64]
_STD_FLOOR = 1e-6  # added to the deviation, as in the public GRPO implementations


def group_advantages(rewards: Floats, norm: AdvantageNorm) -> Floats:
    """Advantages of G sessions from their rewards, both float64 [G].

    `mean_std` is GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2: outcome supervision) with the population standard
    deviation; `mean` leaves the division out (Dr. GRPO, arXiv 2503.20783), which removes the bias towards groups of
    little contrast. Rewards 0, 0, 1, 1 give -½, -½, ½, ½ under `mean` and -1, -1, 1, 1 under `mean_std`.
    Raises ValueError when a reward is not finite.
    """
    rewards = _finite(rewards)
    if _is_flat(rewards):
        return np.zeros_like(rewards)
    centred: Floats = rewards - rewards.mean()
    if norm is AdvantageNorm.MEAN:
        return centred
    scaled: Floats = centred / (rewards.std() + _STD_FLOOR)
    return scaled


def leave_one_out_advantages(rewards: Floats) -> Floats:
    """Reward minus the mean of the other sessions (RLOO, arXiv 2402.14740, section 2.2): G/(G-1) × (r - mean), [G].

    Rewards 0, 0, 1, 1 give -2/3, -2/3, 2/3, 2/3. Raises ValueError when a reward is not finite.
    """
    rewards = _finite(rewards)
    if _is_flat(rewards):
        return np.zeros_like(rewards)
    size = len(rewards)
    result: Floats = (rewards - rewards.mean()) * (size / (size - 1))
    return result


def batch_normalised(values: Floats) -> Floats:
    """Values minus their mean, divided by their deviation (REINFORCE++, arXiv 2501.03262, eq. 10), [N]. Flat: zeros."""
    if _is_flat(values):
        return np.zeros_like(values)
    result: Floats = (values - values.mean()) / (values.std() + _STD_FLOOR)
    return result


def session_advantages(
    rewards: Floats,
    groups: NDArray[np.int32],
    *,
    estimator: AdvantageEstimator,
    norm: AdvantageNorm,
    num_tokens: NDArray[np.int64] | None = None,
    sft_min_reward: float = 1.0,
) -> Floats:
    """Advantages of the M sessions of a batch, all arrays [M]; `groups` numbers the group of each.

    The batch-wide estimators normalise over tokens: a session weighs as its trained tokens (`num_tokens`, by default
    1 each). Mode-aware advantages need the spans: see `core.algorithms.mode_aware`.
    """
    rewards = _finite(rewards)
    match estimator:
        case AdvantageEstimator.GROUP:
            return _by_group(rewards, groups, lambda of_group: group_advantages(of_group, norm))
        case AdvantageEstimator.LEAVE_ONE_OUT:
            return _by_group(rewards, groups, leave_one_out_advantages)
        case AdvantageEstimator.BATCH:
            return _weighted_normalised(rewards, num_tokens)
        case AdvantageEstimator.BATCH_WITH_BASELINE:
            centred = _by_group(rewards, groups, lambda r: group_advantages(r, AdvantageNorm.MEAN))
            return _weighted_normalised(centred, num_tokens)
        case AdvantageEstimator.ONE:
            return (rewards >= sft_min_reward).astype(np.float64)
        case AdvantageEstimator.MODE_AWARE:
            raise ValueError("mode-aware advantages differ within a session; use mode_aware_advantages")


def returns_to_go(rewards: Floats, kl: Floats, sessions: NDArray[np.int32], kl_coef: float) -> Floats:
    """Reward of the session minus kl_coef × the KL from a token to the session's end (REINFORCE++, eq. 8), [N].

    `rewards` is [M]; `kl` and `sessions` are [N], tokens in order, each naming its session.
    """
    result = np.empty(len(kl), dtype=np.float64)
    for session in np.unique(sessions):
        of_session = np.flatnonzero(sessions == session)
        to_go = np.cumsum(kl[of_session][::-1])[::-1]
        result[of_session] = rewards[session] - kl_coef * to_go
    return result


def _by_group(rewards: Floats, groups: NDArray[np.int32], estimate: Callable[[Floats], Floats]) -> Floats:
    result = np.zeros_like(rewards)
    for group in np.unique(groups):
        members = groups == group
        result[members] = estimate(rewards[members])
    return result


def _weighted_normalised(values: Floats, weights: NDArray[np.int64] | None) -> Floats:
    if _is_flat(values if weights is None else values[weights > 0]):
        return np.zeros_like(values)
    mean = np.average(values, weights=weights)
    std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    result: Floats = (values - mean) / (std + _STD_FLOOR)
    return result


def _is_flat(values: Floats) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())


def _finite(rewards: Floats) -> Floats:
    rewards = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards.tolist()}")
    return rewards
