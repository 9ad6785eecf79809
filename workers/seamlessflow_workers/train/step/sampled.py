"""Computes logprobs and entropies of sampled tokens from logits, with a gradient.

Tokens that were sampled under masks get those of the masked distribution. It takes logits [N, V], which may be most of
a step's memory, and returns two arrays of N. Invariant: beside the logits and their gradient, at most CHUNK_ELEMENTS
float32 numbers exist at once, so bfloat16 logits are never widened at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**26  # 256 MiB of float32
LEAST_LOGPROB = -1e30  # its exponential is 0, and its products with weights are finite


@dataclass(frozen=True, slots=True)
class Masks:
    """`rows` [N] int64 point into `table` [U, bytes] uint8, a bit per token, least significant first; -1: no mask."""

    rows: Tensor
    table: Tensor


def logprobs_and_entropies(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    *,
    has_entropy_gradient: bool,
    masks: Masks | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (log p(target) [N], entropies [N]) of softmax(logits / temperature), in float32 or wider.

    `logits` is [N, V], `targets` [N]. The softmax goes over the tokens that the masks allow. The entropies have a
    gradient only with `has_entropy_gradient`.
    """
    logprobs, entropies = _Sampled.apply(logits, targets, temperature, masks)
    return logprobs, entropies if has_entropy_gradient else entropies.detach()


class _Sampled(torch.autograd.Function):
    """d log p(t) / dz_j = [j = t] - p_j; d H / dz_j = -p_j (log p_j + H). The backward pass recomputes the softmax."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, masks: Masks | None
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        normalizers, logprobs, entropies = (
            torch.empty(len(logits), dtype=wide, device=logits.device) for _ in range(3)
        )
        for rows in _chunks(logits):
            scaled = _hide(logits[rows].to(wide) / temperature, rows, masks)
            normalizers[rows] = scaled.logsumexp(-1)
            log_probabilities = _normalized(scaled, normalizers[rows])
            logprobs[rows] = log_probabilities.gather(-1, targets[rows, None])[:, 0]
            entropies[rows] = -(log_probabilities.exp() * log_probabilities).sum(-1)
        ctx.save_for_backward(logits, targets, normalizers, entropies)
        ctx.temperature, ctx.masks = temperature, masks
        ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_logprobs: Tensor | None, d_entropies: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        logits, targets, normalizers, entropies = ctx.saved_tensors
        d_logprobs = torch.zeros_like(normalizers) if d_logprobs is None else d_logprobs
        gradient = torch.empty_like(logits)
        for rows in _chunks(logits):
            scaled = _hide(logits[rows].to(normalizers.dtype) / ctx.temperature, rows, ctx.masks)
            log_probabilities = _normalized(scaled, normalizers[rows])
            part = log_probabilities.exp()
            factor = d_logprobs[rows, None]
            if d_entropies is not None:
                factor = factor + d_entropies[rows, None] * (log_probabilities + entropies[rows, None])
            part *= -factor
            part.scatter_add_(-1, targets[rows, None], d_logprobs[rows, None])
            gradient[rows] = part / ctx.temperature
        return gradient, None, None, None


def _hide(scaled: Tensor, rows: slice, masks: Masks | None) -> Tensor:
    """Set what the masks of these rows do not allow to minus infinity, in place."""
    if masks is None:
        return scaled
    of_rows = masks.rows[rows]
    guided = (of_rows >= 0).nonzero()[:, 0]
    if len(guided):
        hidden = torch.zeros(scaled.shape, dtype=torch.bool, device=scaled.device)
        hidden[guided] = ~_unpacked(masks.table[of_rows[guided]], scaled.shape[-1])
        scaled.masked_fill_(hidden, -torch.inf)
    return scaled


def _unpacked(packed: Tensor, num_tokens: int) -> Tensor:
    """Return one boolean per token, [N, num_tokens]."""
    bits = (packed[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    return bits.flatten(1)[:, :num_tokens].bool()


def _normalized(scaled: Tensor, normalizers: Tensor) -> Tensor:
    """Normalize in place. Tokens that cannot be sampled get a finite log probability, because 0 × -inf is NaN."""
    scaled -= normalizers[:, None]
    return scaled.clamp_(min=LEAST_LOGPROB)


def _chunks(logits: Tensor) -> Iterator[slice]:
    num_rows = max(1, CHUNK_ELEMENTS // max(1, logits.shape[-1]))
    return (slice(start, start + num_rows) for start in range(0, len(logits), num_rows))
