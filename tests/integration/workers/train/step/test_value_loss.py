"""The value loss on tensors against the plain-float oracle."""

import numpy as np
import pytest
import torch

from seamlessflow_workers.train.step.value_loss import ValueTerms, value_loss
from tests.oracles.reference_critic import reference_value_loss


@pytest.mark.parametrize("value_clip", [None, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_equal_the_oracle(seed: int, value_clip: float | None) -> None:
    rng = np.random.default_rng(seed)
    old, returns, weights = rng.normal(size=40), rng.normal(size=40), rng.random(40)
    values = torch.from_numpy(old + rng.normal(0, 0.4, size=40)).requires_grad_()
    terms = ValueTerms(*(torch.from_numpy(array) for array in (old, returns, weights)))
    loss, is_clipped = value_loss(values, terms, value_clip)
    loss.backward()
    expected, gradient = reference_value_loss(
        values.tolist(), old.tolist(), returns.tolist(), weights.tolist(), value_clip
    )
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-12)
    assert values.grad is not None
    np.testing.assert_allclose(values.grad.numpy(), gradient, atol=1e-12)
    assert is_clipped.tolist() == [slope == 0.0 for slope in gradient]
    assert bool(is_clipped.any()) == (value_clip is not None)
