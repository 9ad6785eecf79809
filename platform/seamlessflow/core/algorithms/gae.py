"""Generalised advantage estimation over branches of any length (GAE, arXiv 1506.02438, eq. 16), and whitening.

A branch is the sequence of its trained tokens: what stands between them (tool results, prompts) belongs to the next
state. With V_i the value of the state in which token i is sampled, and V = 0 behind the last one:

    δ_i = r_i + γ·V_{i+1} − V_i        A_i = δ_i + γλ·A_{i+1}        target of the critic: A_i + V_i

No loop over tokens runs in Python: all branches take one step at a time, from their ends.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import Floats, batch_normalised
from seamlessflow.core.training.section import TrainObjective
from seamlessflow.core.trajectory.tree_layout import Ints, TreeLayout


@dataclass(frozen=True, slots=True)
class Branches:
    """The trained tokens of S branches, one branch after the other: branch s has `tokens[starts[s]:starts[s + 1]]`."""

    tokens: Ints  # [B] indices in the batch
    starts: Ints  # [S + 1]


@dataclass(frozen=True, slots=True)
class CriticTargets:
    """The targets of a batch's trained tokens, [T] each; 0 for the others.

    A token that is trained in several branches has the sums of its whitened advantages, by sign (as
    `core.algorithms.tree_weights` says), and the mean of its targets.
    """

    positive: Floats
    negative: Floats
    returns: Floats


def branches_of(layout: TreeLayout, is_trained: NDArray[np.bool_], objective: TrainObjective) -> Branches:
    """Return the trained tokens of each branch, in order. `is_trained` is [T].

    `once`: a token is trained in the first branch that contains it, so a branch has only its own tokens. `by_leaves`:
    it has all of its path.
    """
    trained = np.flatnonzero(is_trained)
    if objective is TrainObjective.ONCE:
        return Branches(trained, np.searchsorted(trained, layout.sample_starts))
    paths = [
        np.concatenate(
            [trained[slice(*np.searchsorted(trained, (segment.start, segment.stop)))] for segment in segments]
        )
        for segments in layout.paths()
    ]
    starts = np.concatenate([[0], np.cumsum([len(path) for path in paths], dtype=np.int64)])
    return Branches(np.concatenate([np.empty(0, dtype=np.int64), *paths]), starts)


def gae(values: Floats, rewards: Floats, starts: Ints, *, gamma: float, gae_lambda: float) -> Floats:
    """Return the advantages of the tokens of all branches, [B], from their values and rewards, [B] each."""
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")  # so that the branches that still go on come first
    ends, lengths = starts[1:][order], lengths[order]
    advantages = np.zeros(len(values))
    carried, next_values = np.zeros(len(ends)), np.zeros(len(ends))
    for step in range(int(lengths.max(initial=0))):
        num_open = int(np.searchsorted(-lengths, -step, side="left"))
        at = ends[:num_open] - 1 - step
        delta = rewards[at] + gamma * next_values[:num_open] - values[at]
        carried[:num_open] = delta + gamma * gae_lambda * carried[:num_open]
        advantages[at], next_values[:num_open] = carried[:num_open], values[at]
    return advantages


def critic_targets(
    branches: Branches,
    *,
    values: Floats,
    token_rewards: Floats,
    branch_rewards: Floats,
    weights: Floats,
    gamma: float,
    gae_lambda: float,
) -> CriticTargets:
    """Return advantages and targets of the tokens. `values`, `token_rewards` and `weights` are [T].

    `branch_rewards` [S] come with the last trained token of each branch; `weights` say how often a token counts in the
    loss. Advantages are whitened over all tokens of all branches (as in InstructGPT's PPO, arXiv 2203.02155).
    """
    tokens, starts, num_tokens = branches.tokens, branches.starts, len(values)
    rewards = token_rewards[tokens]
    has_tokens = np.diff(starts) > 0
    rewards[starts[1:][has_tokens] - 1] += branch_rewards[has_tokens]
    advantages = gae(values[tokens], rewards, starts, gamma=gamma, gae_lambda=gae_lambda)
    num_branches = np.bincount(tokens, minlength=num_tokens)
    counts = np.maximum(num_branches, 1)
    whitened = batch_normalised(advantages) * (weights / counts)[tokens]

    def summed(of_branches: Floats) -> Floats:
        return np.bincount(tokens, weights=of_branches, minlength=num_tokens).astype(np.float64)

    return CriticTargets(
        positive=summed(np.maximum(whitened, 0.0)),
        negative=summed(np.minimum(whitened, 0.0)),
        returns=summed(advantages + values[tokens]) / counts,
    )


def explained_variance(values: Floats, returns: Floats) -> float:
    """Return 1 − Var(returns − values) / Var(returns): 1 for a critic that is always right, 0 for a constant one."""
    return float(1.0 - (returns - values).var() / max(float(returns.var()), 1e-12))
