"""The float64 oracle, checked against hand-made values and finite differences."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.algorithms.section import AlgorithmSection
from tests.fixtures.random_sequences import CONSTANT, random_sequences
from tests.oracles.reference_loss import ReferenceLoss, ReferenceSequence, reference_loss

DAPO = AlgorithmSection.model_validate({"name": "dapo"})


def one_token(*, ratio: float, advantage: float, algorithm: AlgorithmSection = DAPO) -> ReferenceLoss:
    sequence = ReferenceSequence(
        session=0,
        logprobs=[float(np.log(ratio)) - 1.0],
        behaviour_logprobs=[-1.0],
        advantages=[advantage],
        is_trained=[True],
    )
    return reference_loss([sequence], algorithm)


@pytest.mark.parametrize(
    "ratio,advantage,loss,gradient",
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.2, 1.0, -1.2, -1.2),  # inside the range
        (1.5, 1.0, -1.28, 0.0),  # clipped above
        (1.5, -1.0, 1.5, 1.5),  # pushed back: the clip does not protect
        (0.5, -1.0, 0.8, 0.0),  # clipped below
        (0.5, 1.0, -0.5, -0.5),
        (3.0, 0.0, 0.0, 0.0),
    ],
)
def test_clip_acts_only_where_it_lowers_the_objective(
    ratio: float, advantage: float, loss: float, gradient: float
) -> None:
    result = one_token(ratio=ratio, advantage=advantage)
    assert result.loss == pytest.approx(loss)
    assert result.gradients == [pytest.approx([gradient])]


def test_dual_clip_bounds_what_a_negative_advantage_can_cost() -> None:
    dual = AlgorithmSection.model_validate({"name": "dapo", "dual_clip": 3.0})
    result = one_token(ratio=8.0, advantage=-1.0, algorithm=dual)
    assert result.loss == pytest.approx(3.0)
    assert result.gradients == [[0.0]]


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    cispo = AlgorithmSection.model_validate({"name": "cispo"})
    result = one_token(ratio=8.0, advantage=1.0, algorithm=cispo)
    assert result.gradients == [pytest.approx([-5.0])]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "grpo", "kl_coef": 0.3},
        {"name": "dapo", "kl_coef": 0.3, "kl_estimator": "k1"},
        {"name": "dr_grpo", "kl_coef": 0.3, "kl_estimator": "k2"},
        {"name": "gspo", "clip_low": 0.05, "clip_high": 0.05},
        {"name": "rloo", "kl_coef": 0.0},
        {"name": "sft"},
    ],
)
def test_gradient_matches_finite_differences(options: dict[str, Any]) -> None:
    algorithm = AlgorithmSection.model_validate(options)
    batch = random_sequences(1, num_samples=6)

    def value(logprobs: Any) -> ReferenceLoss:
        moved = dataclasses.replace(batch, logprobs=logprobs)
        return reference_loss(moved.sequences(), algorithm, aggregation_constant=CONSTANT)

    step = 1e-6
    steps = step * np.eye(len(batch.logprobs))
    numeric = [(value(batch.logprobs + e).loss - value(batch.logprobs - e).loss) / (2 * step) for e in steps]
    np.testing.assert_allclose(np.concatenate(value(batch.logprobs).gradients), numeric, atol=1e-8)


@pytest.mark.parametrize(
    "aggregation,expected",
    [
        ("token_mean", -(2.0 + 1.0 * 3) / 4),
        ("sequence_mean", -(2.0 + 1.0) / 2),
        ("constant", -(2.0 + 1.0 * 3) / (2 * 10)),
    ],
)
def test_the_three_aggregations_have_their_denominators(aggregation: str, expected: float) -> None:
    algorithm = AlgorithmSection.model_validate({"name": "dapo", "aggregation": aggregation})
    sequences = [
        ReferenceSequence(session, [0.0] * n, [0.0] * n, [advantage] * n, [True] * n)
        for session, (n, advantage) in enumerate([(1, 2.0), (3, 1.0)])
    ]
    sequences.append(ReferenceSequence(2, [0.0], [0.0], [5.0], [False]))  # not trained: it does not count
    assert reference_loss(sequences, algorithm, aggregation_constant=10).loss == pytest.approx(expected)


def test_a_session_that_forked_counts_once() -> None:
    algorithm = AlgorithmSection.model_validate({"name": "grpo", "kl_coef": 0.0})
    whole = [ReferenceSequence(0, [0.0] * 4, [0.0] * 4, [1.0] * 4, [True] * 4)]
    forked = [
        ReferenceSequence(0, [0.0] * 3, [0.0] * 3, [1.0] * 3, [True] * 3),
        ReferenceSequence(0, [0.0], [0.0], [1.0], [True]),
    ]
    other = [ReferenceSequence(1, [0.0], [0.0], [-2.0], [True])]
    assert reference_loss(whole + other, algorithm).loss == pytest.approx(0.5)
    assert reference_loss(forked + other, algorithm).loss == pytest.approx(0.5)
