"""Group-relative advantages: rewards of the sessions of one group in, one advantage per session out.

The baseline is taken over sessions, never over branches: a session that forked counts once.
Equal rewards give advantages of exactly zero, so a group without contrast is recognised and skipped.
"""

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.job_spec import AdvantageNorm

_STD_FLOOR = 1e-6  # added to the deviation, as in the public GRPO implementations


def group_advantages(rewards: NDArray[np.float64], norm: AdvantageNorm) -> NDArray[np.float64]:
    """Advantages of G sessions from their rewards, both float64 [G].

    `mean_std` is GRPO (DeepSeekMath, arXiv 2402.03300, equation 4: outcome supervision) with the population standard
    deviation; `mean` leaves the division out (Dr. GRPO, arXiv 2503.20783), which removes the bias towards groups of
    little contrast. Rewards 0, 0, 1, 1 give -½, -½, ½, ½ under `mean` and -1, -1, 1, 1 under `mean_std`.
    Raises ValueError when a reward is not finite.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards.tolist()}")
    if len(rewards) == 0 or (rewards == rewards[0]).all():
        return np.zeros_like(rewards)
    centred: NDArray[np.float64] = rewards - rewards.mean()
    match norm:
        case AdvantageNorm.MEAN:
            return centred
        case AdvantageNorm.MEAN_STD:
            scaled: NDArray[np.float64] = centred / (rewards.std() + _STD_FLOOR)
            return scaled
