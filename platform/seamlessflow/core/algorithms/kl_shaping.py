"""Advantages where the KL to the reference is part of the reward: RLOO (arXiv 2402.14740) and REINFORCE++ (2501.03262).

Rewards are known when a batch is assembled, the KL only to the trainer, so it makes these advantages itself from the
rewards, groups and sessions that the batch carries.
"""

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import Floats, batch_normalised, returns_to_go
from seamlessflow.core.algorithms.estimators import built_in_estimator, session_advantages
from seamlessflow.core.algorithms.options import MAX_LOG_RATIO, AdvantageEstimator, KlEstimator
from seamlessflow.core.algorithms.section import AlgorithmSection


def kl_estimates(difference: Floats, estimator: KlEstimator) -> Floats:
    """KL(policy ‖ reference) per token from difference = reference - policy logprob, [N]."""
    match estimator:
        case KlEstimator.K1:
            result: Floats = -difference
        case KlEstimator.K2:
            result = np.square(difference) / 2
        case KlEstimator.K3:
            cut = np.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO)
            result = np.expm1(cut) - cut
    return result


def kl_shaped_advantages(
    *,
    kl: Floats,
    sessions: NDArray[np.int32],
    rewards: Floats,
    groups: NDArray[np.int32],
    algorithm: AlgorithmSection,
) -> Floats:
    """Advantages of N trained tokens, [N]: `kl` and `sessions` are [N], `rewards` and `groups` of the sessions [M].

    `batch`: reward minus the KL from the token on, normalised over the tokens. Others: the whole session's KL is taken
    off its reward, then the estimator compares all sessions, including those without a trained token.
    """
    if algorithm.advantage is AdvantageEstimator.BATCH:
        return batch_normalised(returns_to_go(rewards, kl, sessions, algorithm.kl_coef))
    num_tokens = np.bincount(sessions, minlength=len(rewards))
    of_session: Floats = np.bincount(sessions, weights=kl, minlength=len(rewards)).astype(np.float64)
    advantages = session_advantages(
        rewards - algorithm.kl_coef * _with_unknown_kl(of_session, groups, is_known=num_tokens > 0),
        groups,
        built_in_estimator(AdvantageEstimator(algorithm.advantage), norm=algorithm.advantage_norm),
        num_tokens=num_tokens,
    )
    result: Floats = advantages[sessions]
    return result


def _with_unknown_kl(of_session: Floats, groups: NDArray[np.int32], *, is_known: NDArray[np.bool_]) -> Floats:
    """The KL of each session, [M]; one without a trained token counts with the mean of its group's known ones.

    Counted as 0 it would look better than its siblings by a penalty that it was spared for being left out. In a group
    of which nothing is known nobody is trained, so its value does not matter.
    """
    num_groups = int(groups.max(initial=-1)) + 1
    num_known = np.bincount(groups[is_known], minlength=num_groups)
    sums = np.bincount(groups[is_known], weights=of_session[is_known], minlength=num_groups)
    means = sums / np.maximum(num_known, 1)
    result: Floats = np.where(is_known, of_session, means[groups])
    return result
