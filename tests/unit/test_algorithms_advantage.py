"""Group-relative advantages."""

import numpy as np
import pytest

from seamlessflow.core.algorithms.advantage import group_advantages
from seamlessflow.core.job_spec import AdvantageNorm

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
