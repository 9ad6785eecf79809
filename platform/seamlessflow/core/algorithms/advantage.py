"""Advantages from rewards: one per session, or per token where the reward includes the KL.

The baseline is taken over sessions, never over branches: a session that forked counts once. Rewards that are equal
within a group give advantages of exactly zero (except for the batch-wide estimators), so a group without contrast is
recognised and skipped.
"""

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.options import AdvantageNorm

Floats = NDArray[np.float64]
_ROUNDING = 1e-9
_STD_FLOOR = 1e-6  # added to the deviation, as in the public GRPO implementations


def group_advantages(rewards: Floats, norm: AdvantageNorm) -> Floats:
    """Return the advantages of G sessions from their rewards, both float64 [G].

    `mean_std` is GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2: outcome supervision) with the population standard
    deviation; `mean` omits the division (Dr. GRPO, arXiv 2503.20783), which removes the bias towards groups of little
    contrast. Rewards 0, 0, 1, 1 give -½, -½, ½, ½ under `mean` and -1, -1, 1, 1 under `mean_std`. Raises ValueError if
    a reward is not finite.
    """
    rewards = _finite(rewards)
    if is_flat(rewards):
        return np.zeros_like(rewards)
    centred: Floats = rewards - rewards.mean()
    if norm is AdvantageNorm.MEAN:
        return centred
    scaled: Floats = centred / (rewards.std() + _STD_FLOOR)
    return scaled


def leave_one_out_advantages(rewards: Floats) -> Floats:
    """Return the reward minus the mean of the other sessions (RLOO, arXiv 2402.14740, section 2.2): G/(G-1) × (r -
    mean), [G].

    Rewards 0, 0, 1, 1 give -2/3, -2/3, 2/3, 2/3. Raises ValueError if a reward is not finite.
    """
    rewards = _finite(rewards)
    if is_flat(rewards):
        return np.zeros_like(rewards)
    size = len(rewards)
    result: Floats = (rewards - rewards.mean()) * (size / (size - 1))
    return result


def batch_normalised(values: Floats) -> Floats:
    """Subtract the mean of values [N] and divide by their deviation (REINFORCE++, arXiv 2501.03262, eq. 10); equal
    values give zeros."""
    if is_flat(values):
        return np.zeros_like(values)
    result: Floats = (values - values.mean()) / (values.std() + _STD_FLOOR)
    return result


def weighted_normalised(values: Floats, num_tokens: NDArray[np.int64]) -> Floats:
    """Like `batch_normalised`, but each value counts as often as its session has trained tokens, all [M]."""
    if is_flat(values[num_tokens > 0]):
        return np.zeros_like(values)
    mean = np.average(values, weights=num_tokens)
    std = np.sqrt(np.average((values - mean) ** 2, weights=num_tokens))
    result: Floats = (values - mean) / (std + _STD_FLOOR)
    return result


def returns_to_go(rewards: Floats, kl: Floats, sessions: NDArray[np.int32], kl_coef: float) -> Floats:
    """Return the session's reward minus kl_coef × the KL from a token to the session's end (REINFORCE++, eq. 8), [N].

    `rewards` is [M]; `kl` and `sessions` are [N]: the tokens in order, each with the number of its session.
    """
    result = np.empty(len(kl), dtype=np.float64)
    for session in np.unique(sessions):
        of_session = np.flatnonzero(sessions == session)
        to_go = np.cumsum(kl[of_session][::-1])[::-1]
        result[of_session] = rewards[session] - kl_coef * to_go
    return result


def is_flat(values: Floats) -> bool:
    """Return whether values [N] are equal, up to what sums of floats lose: 0.1 + 0.2 is 0.3."""
    return len(values) == 0 or bool(np.allclose(values, values[0], rtol=_ROUNDING, atol=_ROUNDING))


def _finite(rewards: Floats) -> Floats:
    rewards = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards.tolist()}")
    return rewards
