"""The loss of PPO's critic on tensors, equal to `tests.oracles.reference_critic.reference_value_loss`."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ValueTerms:
    """Data about the N trained tokens of a micro-batch, [N] each."""

    old_values: Tensor  # of the critic at the start of the batch
    returns: Tensor  # what it should have predicted
    weights: Tensor  # of the token in the loss, with the denominator of its mini-batch


def value_loss(values: Tensor, terms: ValueTerms, value_clip: float | None) -> tuple[Tensor, Tensor]:
    """Return this micro-batch's term of Σ w·½·max((V − G)², (V_clipped − G)²), and which tokens the clip limits, bool
    [N].

    V_clipped stays within `value_clip` of the old value (arXiv 2203.02155, as in OpenAI's baselines).
    """
    plain = (values - terms.returns).square()
    if value_clip is None:
        return (terms.weights * plain).sum() / 2, torch.zeros_like(plain, dtype=torch.bool)
    near = values.clamp(terms.old_values - value_clip, terms.old_values + value_clip)
    clipped = (near - terms.returns).square()
    return (terms.weights * torch.maximum(plain, clipped)).sum() / 2, clipped.detach() > plain.detach()
