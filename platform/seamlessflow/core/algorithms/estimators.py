"""Advantage estimators: they work on the rewards of each group, then over the batch. Includes the built-in ones.

An estimator sees only rewards and token counts, so it is pure arithmetic: no clock, no randomness, no state between
calls. The same batch must always give the same bytes. Mode-aware advantages need the spans of a session, so they are no
estimator in this sense: see `core.algorithms.mode_aware`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import (
    Floats,
    group_advantages,
    leave_one_out_advantages,
    weighted_normalised,
)
from seamlessflow.core.algorithms.options import AdvantageEstimator, AdvantageNorm

Counts = NDArray[np.int64]


class Estimator(Protocol):
    def of_group(self, rewards: Floats) -> Floats:
        """Return the advantages of the G sessions of one group from their rewards, both float64 [G]."""
        ...

    def of_batch(self, advantages: Floats, num_tokens: Counts) -> Floats:
        """Return the advantages of all M sessions of a batch, [M], from those within their groups, in the same order.

        `num_tokens`: the number of trained tokens of each session; 0 for one that is left out.
        """
        ...


class _WithinGroup:
    """An estimator that compares only the sessions of a group."""

    def of_batch(self, advantages: Floats, num_tokens: Counts) -> Floats:
        return advantages


@dataclass(frozen=True, slots=True)
class GroupEstimator(_WithinGroup):
    norm: AdvantageNorm

    def of_group(self, rewards: Floats) -> Floats:
        return group_advantages(rewards, self.norm)


class LeaveOneOutEstimator(_WithinGroup):
    def of_group(self, rewards: Floats) -> Floats:
        return leave_one_out_advantages(rewards)


@dataclass(frozen=True, slots=True)
class ImitationEstimator(_WithinGroup):
    """Gives 1 to each session with at least `min_reward` and 0 to the others."""

    min_reward: float

    def of_group(self, rewards: Floats) -> Floats:
        return (rewards >= self.min_reward).astype(np.float64)


class CriticEstimator(_WithinGroup):
    """Gives each session its reward: the trainer replaces it, because only its critic knows the expected reward."""

    def of_group(self, rewards: Floats) -> Floats:
        return rewards


@dataclass(frozen=True, slots=True)
class BatchEstimator:
    """Normalises over the tokens of the batch: a session counts as often as it has trained tokens."""

    has_baseline: bool

    def of_group(self, rewards: Floats) -> Floats:
        return group_advantages(rewards, AdvantageNorm.MEAN) if self.has_baseline else rewards

    def of_batch(self, advantages: Floats, num_tokens: Counts) -> Floats:
        return weighted_normalised(advantages, num_tokens)


def built_in_estimator(
    name: AdvantageEstimator, *, norm: AdvantageNorm, sft_min_reward: float = 1.0
) -> Estimator:
    """Return the estimator of this name. Raises ValueError for mode-aware advantages."""
    match name:
        case AdvantageEstimator.GROUP:
            return GroupEstimator(norm)
        case AdvantageEstimator.LEAVE_ONE_OUT:
            return LeaveOneOutEstimator()
        case AdvantageEstimator.BATCH:
            return BatchEstimator(has_baseline=False)
        case AdvantageEstimator.BATCH_WITH_BASELINE:
            return BatchEstimator(has_baseline=True)
        case AdvantageEstimator.ONE:
            return ImitationEstimator(sft_min_reward)
        case AdvantageEstimator.GAE:
            return CriticEstimator()
        case AdvantageEstimator.MODE_AWARE:
            raise ValueError("mode-aware advantages differ within a session; use mode_aware_advantages")


def session_advantages(
    rewards: Floats,
    groups: NDArray[np.int32],
    estimator: Estimator,
    *,
    num_tokens: Counts | None = None,
) -> Floats:
    """Return the advantages of the M sessions of a batch. All arrays are [M]; `groups` numbers the group of each
    session.

    `num_tokens` defaults to 1 each. Raises ValueError if a reward is not finite.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards.tolist()}")
    of_groups = np.zeros_like(rewards)
    for group in np.unique(groups):
        members = groups == group
        of_groups[members] = estimator.of_group(rewards[members])
    counts = np.ones(len(rewards), dtype=np.int64) if num_tokens is None else num_tokens
    return estimator.of_batch(of_groups, counts)
