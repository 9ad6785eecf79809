"""What each token of a tree weighs in the loss: sums over the branches that go through it.

A branch b gives a token the loss c_b · f(ρ, A_b) with ratio ρ, advantage A_b and coefficient c_b. One weight per token
is not enough where a clipped f meets advantages of both signs, but f(ρ, c·A) = c · f(ρ, A) for c ≥ 0, so that with

    A⁺ = Σ c_b · max(A_b, 0),   A⁻ = Σ c_b · min(A_b, 0),   w = Σ c_b

the branches' losses sum to exactly f(ρ, A⁺) + f(ρ, A⁻), and terms without an advantage (KL, entropy) to w times theirs.
For the clipped ratio of PPO that is −[min(ρA⁺, clip(ρ)A⁺) + min(ρA⁻, clip(ρ)A⁻)].

Two objectives. ONCE: a token counts in the first branch that contains it (c_b = 1 there, else 0), as if the others had
it masked. BY_LEAVES: it counts in every branch (c_b = 1), as if each branch were trained alone. The denominator of the
token mean is Σ w over the trained tokens of the batch, which under BY_LEAVES is the number of trained tokens of all
branches written out. Source: the gradient scaler of "Tree Training" (arXiv 2511.00413), generalised to clipping.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.training.section import TrainObjective
from seamlessflow.core.trajectory.tree_layout import TreeLayout

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Weights of the tokens, each [T]; 0 for a token that is not trained."""

    positive: Floats  # A⁺
    negative: Floats  # A⁻
    weights: Floats  # w


def token_weights(
    layout: TreeLayout, loss_mask: NDArray[np.uint8], advantages: NDArray[Any], objective: TrainObjective
) -> TokenWeights:
    """Return the weights of all tokens. `loss_mask` is [T]; `advantages` is [S], one per branch."""
    values = np.asarray(advantages, dtype=np.float64)
    sums = [np.maximum(values, 0.0), np.minimum(values, 0.0), np.ones(layout.num_samples)]
    match objective:
        case TrainObjective.ONCE:
            spread = [value[layout.samples] for value in sums]
        case TrainObjective.BY_LEAVES:
            spread = [layout.branch_sums(value) for value in sums]
    is_trained = loss_mask != 0
    positive, negative, weights = (np.where(is_trained, value, 0.0) for value in spread)
    return TokenWeights(positive=positive, negative=negative, weights=weights)
