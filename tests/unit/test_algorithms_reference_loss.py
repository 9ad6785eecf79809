"""The float64 oracle of the token loss, checked against hand-made values and finite differences."""

import numpy as np
import pytest

from seamlessflow.core.algorithms.reference_loss import Floats, ReferenceLoss, reference_loss


def one_token(*, ratio: float, advantage: float) -> ReferenceLoss:
    return reference_loss(
        logprobs=np.log(np.array([ratio])) - 1.0,
        behaviour_logprobs=np.array([-1.0]),
        advantages=np.array([advantage]),
        clip_low=0.2,
        clip_high=0.28,
        num_trained_tokens=1,
    )


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
    assert result.gradient.tolist() == pytest.approx([gradient])


@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
def test_gradient_matches_finite_differences(kl_coef: float) -> None:
    rng = np.random.default_rng(1)
    behaviour, reference = rng.normal(-2, 0.5, size=(2, 50))
    logprobs = behaviour + rng.normal(0, 0.4, size=50)
    advantages = rng.normal(size=50)

    def loss(values: Floats) -> ReferenceLoss:
        return reference_loss(
            logprobs=values,
            behaviour_logprobs=behaviour,
            advantages=advantages,
            clip_low=0.2,
            clip_high=0.28,
            num_trained_tokens=80,
            reference_logprobs=reference,
            kl_coef=kl_coef,
        )

    step = 1e-6
    numeric = [(loss(logprobs + e).loss - loss(logprobs - e).loss) / (2 * step) for e in step * np.eye(50)]
    np.testing.assert_allclose(loss(logprobs).gradient, numeric, atol=1e-8)


def test_loss_is_normalised_by_the_tokens_of_the_whole_batch() -> None:
    result = reference_loss(
        logprobs=np.zeros(2),
        behaviour_logprobs=np.zeros(2),
        advantages=np.ones(2),
        clip_low=0.2,
        clip_high=0.2,
        num_trained_tokens=10,
    )
    assert result.loss == pytest.approx(-0.2)
