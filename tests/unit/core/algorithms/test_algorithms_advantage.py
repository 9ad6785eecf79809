"""Group-relative advantages."""

import numpy as np
import pytest
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import (
    group_advantages,
    leave_one_out_advantages,
    returns_to_go,
)
from seamlessflow.core.algorithms.estimators import built_in_estimator, session_advantages
from seamlessflow.core.algorithms.options import AdvantageEstimator, AdvantageNorm

BOTH = list(AdvantageNorm)


def test_mean_subtracts_the_mean_of_the_group() -> None:
    advantages = group_advantages(np.array([0.0, 0.0, 1.0, 1.0]), AdvantageNorm.MEAN)
    assert advantages.tolist() == [-0.5, -0.5, 0.5, 0.5]


def test_mean_std_divides_by_the_standard_deviation() -> None:
    advantages = group_advantages(np.array([0.0, 0.0, 1.0, 1.0]), AdvantageNorm.MEAN_STD)
    np.testing.assert_allclose(advantages, [-1, -1, 1, 1], rtol=1e-5)


@pytest.mark.parametrize("norm", BOTH)
@pytest.mark.parametrize("rewards", [[0.1] * 7, [1.0], [], [-3.0, -3.0]])
def test_group_without_contrast_has_advantages_of_exactly_zero(
    norm: AdvantageNorm, rewards: list[float]
) -> None:
    advantages = group_advantages(np.array(rewards), norm)
    assert advantages.tolist() == [0.0] * len(rewards)


@pytest.mark.parametrize("norm", BOTH)
def test_advantages_sum_to_zero_and_keep_the_order_of_the_rewards(norm: AdvantageNorm) -> None:
    rewards = np.random.default_rng(0).normal(size=16)
    advantages = group_advantages(rewards, norm)
    assert abs(advantages.sum()) < 1e-12
    assert np.argsort(advantages).tolist() == np.argsort(rewards).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_reward_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages(np.array([0.0, bad]), AdvantageNorm.MEAN)


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    rewards = np.array([1.0, 0.0, 0.5, 4.0])
    expected = [reward - (rewards.sum() - reward) / 3 for reward in rewards]
    np.testing.assert_allclose(leave_one_out_advantages(rewards), expected, atol=1e-12)
    assert leave_one_out_advantages(np.array([0.3] * 5)).tolist() == [0.0] * 5


def estimate(
    name: AdvantageEstimator,
    *,
    num_tokens: NDArray[np.int64] | None = None,
    sft_min_reward: float = 1.0,
) -> list[float]:
    advantages = session_advantages(
        np.array([0.0, 1.0, 1.0, 1.0]),
        np.array([0, 0, 1, 1], dtype=np.int32),
        built_in_estimator(name, norm=AdvantageNorm.MEAN, sft_min_reward=sft_min_reward),
        num_tokens=num_tokens,
    )
    return [float(advantage) for advantage in advantages]


def test_group_estimators_look_at_their_own_group_only() -> None:
    assert estimate(AdvantageEstimator.GROUP) == [-0.5, 0.5, 0.0, 0.0]
    assert estimate(AdvantageEstimator.LEAVE_ONE_OUT) == [-1.0, 1.0, 0.0, 0.0]


def test_batch_estimator_has_mean_zero_and_deviation_one_over_tokens() -> None:
    num_tokens = np.array([5, 1, 2, 8])
    advantages = np.repeat(estimate(AdvantageEstimator.BATCH, num_tokens=num_tokens), num_tokens)
    assert advantages.mean() == pytest.approx(0, abs=1e-12)
    assert advantages.std() == pytest.approx(1, rel=1e-5)
    assert len(set(advantages)) == 2  # equal rewards, equal advantages, whatever the group


def test_baseline_of_the_group_comes_before_the_normalisation_over_the_batch() -> None:
    advantages = estimate(AdvantageEstimator.BATCH_WITH_BASELINE)
    assert advantages[2:] == [0.0, 0.0]
    assert advantages[1] == -advantages[0] == pytest.approx(np.sqrt(2), rel=1e-5)


def test_likelihood_trains_the_sessions_that_reached_the_reward() -> None:
    assert estimate(AdvantageEstimator.ONE, sft_min_reward=1.0) == [0.0, 1.0, 1.0, 1.0]


def test_returns_to_go_sum_the_kl_from_a_token_to_the_end_of_its_session() -> None:
    returns = returns_to_go(
        np.array([1.0, 2.0]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 0, 0, 1], dtype=np.int32), 2.0
    )
    np.testing.assert_allclose(returns, [1 - 1.2, 1 - 1.0, 1 - 0.6, 2 - 0.8])


def test_what_sums_of_floats_lose_is_no_contrast() -> None:
    rewards = np.array([0.3, 0.1 + 0.2])
    assert rewards[0] != rewards[1]
    for norm in AdvantageNorm:
        assert group_advantages(rewards, norm).tolist() == [0, 0]
    assert leave_one_out_advantages(rewards).tolist() == [0, 0]
    assert group_advantages(np.array([0.3, 0.3001]), AdvantageNorm.MEAN).any()
