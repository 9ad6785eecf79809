"""Generalised advantage estimation over branches: the textbook on each branch, and what shared tokens get."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from seamlessflow.core.algorithms.gae import branches_of, critic_targets, explained_variance, gae
from seamlessflow.core.training.section import TrainObjective
from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout
from tests.fixtures.random_trees import branch_tokens
from tests.oracles.reference_critic import reference_gae

Floats = NDArray[np.float64]
# A branch of 5 tokens, two that leave it behind its third, and another tree of 2.
FORKED = TreeLayout(np.array([0, 5, 7, 10, 12]), np.array([NO_PARENT, 2, 2, NO_PARENT]))
UNITS = st.floats(0, 1)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    gamma=UNITS,
    gae_lambda=UNITS,
    seed=st.integers(0, 1000),
)
def test_each_branch_has_the_advantages_of_the_textbook(
    lengths: list[int], gamma: float, gae_lambda: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    values, rewards = rng.normal(size=(2, int(starts[-1])))
    found = gae(values, rewards, starts, gamma=gamma, gae_lambda=gae_lambda)
    for start, end in itertools.pairwise(starts):
        own = slice(start, end)
        expected = reference_gae(
            values[own].tolist(), rewards[own].tolist(), gamma=gamma, gae_lambda=gae_lambda
        )
        np.testing.assert_allclose(found[own], expected, atol=1e-12)


def test_without_bootstrapping_an_advantage_is_the_return_minus_the_value() -> None:
    values, rewards = np.array([0.5, 0.25, 1.0]), np.array([0.0, -0.1, 1.0])
    found = gae(values, rewards, np.array([0, 3]), gamma=1.0, gae_lambda=1.0)
    assert found == pytest.approx([0.9 - 0.5, 0.9 - 0.25, 0.0])


def test_a_critic_that_knows_the_reward_leaves_no_advantage() -> None:
    assert not gae(
        np.full(6, 0.7), np.array([0.0] * 5 + [0.7]), np.array([0, 6]), gamma=1.0, gae_lambda=0.9
    ).any()


def targets(objective: TrainObjective, *, seed: int = 3) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return advantages, targets and values of the forked trees, [T], and which tokens are trained."""
    rng = np.random.default_rng(seed)
    is_trained = np.array([0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1], dtype=np.bool_)
    values = rng.normal(size=12)
    counts = FORKED.branch_sums(np.ones(4)) if objective is TrainObjective.BY_LEAVES else np.ones(12)
    found = critic_targets(
        branches_of(FORKED, is_trained, objective),
        values=values,
        token_rewards=np.full(12, -0.125),
        branch_rewards=np.array([1.0, 1.0, 1.0, 0.0]),
        weights=np.where(is_trained, counts, 0.0),
        gamma=0.9,
        gae_lambda=0.8,
    )
    return found.positive + found.negative, found.returns, values, is_trained


def by_hand(objective: TrainObjective) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return whitened advantages and targets of each trained token, one for each branch that trains it."""
    _, _, values, is_trained = targets(objective)
    rewards = [1.0, 1.0, 1.0, 0.0]
    raw: dict[int, list[float]] = {}
    returns: dict[int, list[float]] = {}
    for sample, path in enumerate(branch_tokens(FORKED)):
        first = int(FORKED.sample_starts[sample]) if objective is TrainObjective.ONCE else 0
        tokens = [token for token in path if is_trained[token] and token >= first]
        own = [-0.125] * len(tokens)
        own[-1] += rewards[sample]
        found = reference_gae(values[tokens].tolist(), own, gamma=0.9, gae_lambda=0.8)
        for token, advantage in zip(tokens, found, strict=True):
            raw.setdefault(token, []).append(advantage)
            returns.setdefault(token, []).append(advantage + float(values[token]))
    every = np.concatenate([np.array(own) for own in raw.values()])
    whitened = {
        token: [(value - every.mean()) / (every.std() + 1e-6) for value in own] for token, own in raw.items()
    }
    return whitened, returns


@pytest.mark.parametrize("objective", TrainObjective)
def test_a_shared_token_has_the_sum_of_its_advantages_and_the_mean_of_its_targets(
    objective: TrainObjective,
) -> None:
    advantages, returns, _, is_trained = targets(objective)
    expected_advantages, expected_returns = by_hand(objective)
    assert sorted(expected_advantages) == np.flatnonzero(is_trained).tolist()
    assert max(map(len, expected_advantages.values())) == (3 if objective is TrainObjective.BY_LEAVES else 1)
    for token, own in expected_advantages.items():
        assert advantages[token] == pytest.approx(sum(own), abs=1e-12)
        assert returns[token] == pytest.approx(np.mean(expected_returns[token]), abs=1e-12)
    assert not advantages[~is_trained].any()


def test_the_signs_of_branches_are_kept_apart() -> None:
    """As the clip objective needs it for a token that one branch rewards and another one punishes."""
    layout = TreeLayout(np.array([0, 3, 5]), np.array([NO_PARENT, 1]))
    is_trained = np.array([False, True, True, True, True])
    found = critic_targets(
        branches_of(layout, is_trained, TrainObjective.BY_LEAVES),
        values=np.zeros(5),
        token_rewards=np.zeros(5),
        branch_rewards=np.array([1.0, -1.0]),
        weights=np.array([0.0, 2.0, 1.0, 1.0, 1.0]),
        gamma=1.0,
        gae_lambda=1.0,
    )
    assert found.positive[1] > 0.5
    assert found.negative[1] < -0.5
    assert found.returns[1] == 0.0


def test_advantages_are_whitened_over_the_tokens_of_all_branches() -> None:
    advantages, _, _, is_trained = targets(TrainObjective.ONCE)
    assert advantages[is_trained].mean() == pytest.approx(0.0, abs=1e-12)
    assert advantages[is_trained].std() == pytest.approx(1.0, abs=1e-5)


def test_a_batch_without_trained_tokens_has_no_targets() -> None:
    nothing = np.zeros(12)
    found = critic_targets(
        branches_of(FORKED, nothing > 0, TrainObjective.BY_LEAVES),
        values=nothing,
        token_rewards=nothing,
        branch_rewards=np.ones(4),
        weights=nothing,
        gamma=1.0,
        gae_lambda=1.0,
    )
    assert not np.concatenate([found.positive, found.negative, found.returns]).any()


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant_one() -> None:
    returns = np.array([0.0, 1.0, 0.5])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(3, 0.2), returns) == pytest.approx(0.0)
