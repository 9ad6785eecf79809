"""The GRPO token loss and its gradient in plain float64: the oracle that the tensor loss is tested against.

Per trained token, with ratio r = exp(logprob - behaviour logprob) against the *sampler's recorded* logprob:

    -min(r·A, clip(r, 1 - clip_low, 1 + clip_high)·A) + kl_coef·k3,   k3 = exp(d) - d - 1,   d = reference - logprob

summed and divided by `num_trained_tokens` (the token mean over the whole batch, whatever the micro-batch). The
asymmetric clip range is DAPO's (arXiv 2503.14476); k3 is Schulman's estimator, as in DeepSeekMath (arXiv 2402.03300).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReferenceLoss:
    loss: float
    gradient: Floats  # d loss / d logprob, [N]


def reference_loss(
    *,
    logprobs: Floats,
    behaviour_logprobs: Floats,
    advantages: Floats,
    clip_low: float,
    clip_high: float,
    num_trained_tokens: int,
    reference_logprobs: Floats | None = None,
    kl_coef: float = 0.0,
) -> ReferenceLoss:
    """Loss over N trained tokens, all arrays float64 [N]."""
    ratio = np.exp(logprobs - behaviour_logprobs)
    clipped = np.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    is_unclipped = (
        ratio * advantages <= clipped * advantages
    )  # the minimum follows the policy, so it has a gradient
    loss = -np.minimum(ratio * advantages, clipped * advantages)
    gradient = np.where(is_unclipped, -ratio * advantages, 0.0)
    if reference_logprobs is not None:
        difference = reference_logprobs - logprobs
        loss = loss + kl_coef * (np.exp(difference) - difference - 1.0)
        gradient = gradient + kl_coef * (1.0 - np.exp(difference))
    return ReferenceLoss(loss=float(loss.sum() / num_trained_tokens), gradient=gradient / num_trained_tokens)
