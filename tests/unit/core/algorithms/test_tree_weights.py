"""The loss of a tree is the sum of its branches' losses, including clipping, signs and KL."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.algorithms.tree_weights import token_weights
from seamlessflow.core.job_spec import TrainObjective
from seamlessflow.core.trajectory.tree_layout import TreeLayout
from tests.fixtures.random_trees import branch_tokens, tree_layouts
from tests.oracles.reference_loss import ReferenceSequence, reference_loss

Floats = NDArray[np.float64]
KL_COEF = 0.3


def loss(
    tokens: NDArray[np.int64], facts: dict[str, Floats], advantages: Floats, *, kl_coef: float
) -> tuple[float, list[float]]:
    """Return the sum over the tokens, without a divisor, and its gradient."""
    algorithm = AlgorithmSection.model_validate(
        {"name": "dapo", "kl_coef": kl_coef, "aggregation": "constant"}
    )
    sequence = ReferenceSequence(
        session=0,
        logprobs=facts["logprobs"][tokens].tolist(),
        behaviour_logprobs=facts["behaviour"][tokens].tolist(),
        reference_logprobs=facts["reference"][tokens].tolist(),
        advantages=advantages.tolist(),
        is_trained=[True] * len(tokens),
    )
    result = reference_loss([sequence], algorithm, aggregation_constant=1.0)
    return result.loss, result.gradients[0]


def branch_by_branch(
    layout: TreeLayout,
    mask: NDArray[np.uint8],
    facts: dict[str, Floats],
    values: Floats,
    objective: TrainObjective,
) -> tuple[float, Floats, int]:
    """Return loss, gradient by token and number of trained tokens for branches that are trained one
    by one."""
    total, gradient, num_trained = 0.0, np.zeros(layout.num_tokens), 0
    for sample, branch in enumerate(branch_tokens(layout)):
        tokens = np.array([t for t in branch if mask[t]], dtype=np.int64)
        if objective is TrainObjective.ONCE:
            tokens = tokens[tokens >= layout.sample_starts[sample]]  # others have it masked
        value, slope = loss(tokens, facts, np.full(len(tokens), values[sample]), kl_coef=KL_COEF)
        total += value
        gradient[tokens] += slope
        num_trained += len(tokens)
    return total, gradient, num_trained


@given(layout=tree_layouts(), seed=st.integers(0, 2**32 - 1), objective=st.sampled_from(TrainObjective))
def test_loss_gradient_and_denominator_equal_branch_by_branch(
    layout: TreeLayout, seed: int, objective: TrainObjective
) -> None:
    rng = np.random.default_rng(seed)
    facts = {name: rng.normal(-1, 0.4, layout.num_tokens) for name in ("logprobs", "behaviour", "reference")}
    mask = (rng.random(layout.num_tokens) < 0.7).astype(np.uint8)
    values = rng.normal(size=layout.num_samples) * (rng.random(layout.num_samples) < 0.8)
    expected, expected_gradient, num_trained = branch_by_branch(layout, mask, facts, values, objective)

    found = token_weights(layout, mask, values, objective)
    tokens = np.flatnonzero(mask)
    total, gradient = 0.0, np.zeros(layout.num_tokens)
    for advantages in (found.positive, found.negative):
        value, slope = loss(tokens, facts, advantages[tokens], kl_coef=0.0)
        total += value
        gradient[tokens] += slope
    difference = facts["reference"] - facts["logprobs"]
    total += KL_COEF * float((found.weights * (np.exp(difference) - difference - 1)).sum())
    gradient += KL_COEF * found.weights * (1 - np.exp(difference))
    assert total == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-10)
    assert found.weights.sum() == num_trained
    assert ((found.weights > 0) == (mask != 0)).all()


def test_one_weight_per_token_would_not_suffice() -> None:
    """Branches of advantage 1 and -1 pass through one token whose ratio is clipped on one side, so
    the sum is not zero."""
    layout = TreeLayout(np.array([0, 3, 4]), np.array([-1, 1]))
    weights = token_weights(
        layout, np.array([0, 1, 1, 1], dtype=np.uint8), np.array([1.0, -1.0]), TrainObjective.BY_LEAVES
    )
    assert (weights.positive[1], weights.negative[1], weights.weights[1]) == (1.0, -1.0, 2.0)
    ratio, clipped = 2.0, 1.28
    surrogate = min(ratio * 1.0, clipped * 1.0) + min(ratio * -1.0, clipped * -1.0)
    assert surrogate == pytest.approx(1.28 - 2.0)
