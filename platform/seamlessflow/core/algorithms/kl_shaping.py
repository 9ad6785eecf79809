"""Advantages with the KL to the reference in the reward: RLOO (arXiv 2402.14740), REINFORCE++ (2501.03262).

Rewards are known when a batch is assembled, but only the trainer knows the KL. So the trainer computes these advantages
itself from the rewards, groups and sessions that the batch carries.
"""

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import Floats, batch_normalised, returns_to_go
from seamlessflow.core.algorithms.estimators import built_in_estimator, session_advantages
from seamlessflow.core.algorithms.options import MAX_LOG_RATIO, AdvantageEstimator, KlEstimator
from seamlessflow.core.algorithms.section import AlgorithmSection


def kl_estimates(difference: Floats, estimator: KlEstimator) -> Floats:
    """Estimate KL(policy ‖ reference) per token from difference = reference - policy logprob, [N]."""
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
    """Return the advantages of N trained tokens, [N]. `kl` and `sessions` are [N], `rewards` and `groups` [M].

    `batch`: the reward minus the KL from the token on, normalised over the tokens. Others: the KL of the whole session
    is subtracted from its reward, then the estimator compares all sessions, including those without a trained token.
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
    """Return the KL of each session, [M]; one without a trained token gets the mean of its group's known ones.

    With 0 it would look better than its siblings, because being left out would spare it a penalty. In a group where
    nothing is known, no session is trained, so the value does not matter.
    """
    num_groups = int(groups.max(initial=-1)) + 1
    num_known = np.bincount(groups[is_known], minlength=num_groups)
    sums = np.bincount(groups[is_known], weights=of_session[is_known], minlength=num_groups)
    means = sums / np.maximum(num_known, 1)
    result: Floats = np.where(is_known, of_session, means[groups])
    return result
