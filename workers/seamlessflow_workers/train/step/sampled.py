"""Computes logprobs and entropies of sampled tokens, with a gradient, from logits or from the input of the output head.

Tokens that were sampled under masks get those of the masked distribution. It takes logits [N, V], which may be most of
a step's memory, or the head's inputs [N, H] and its weight, and returns two arrays of N. Invariants: beside the logits
and their gradient, at most CHUNK_ELEMENTS float32 numbers exist at once, so bfloat16 logits are never widened at once;
from the head's inputs, at most CHUNK_ELEMENTS logits exist at once, in either pass.
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
    logprobs, entropies = _FromLogits.apply(logits, _Sampling(targets, temperature, masks))
    return logprobs, entropies if has_entropy_gradient else entropies.detach()


def head_logprobs_and_entropies(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    *,
    has_entropy_gradient: bool,
    masks: Masks | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the same for logits = hidden [N, H] · weightᵀ [H, V] + bias [V], without having all of them at once.

    They are computed in chunks, in the backward pass again. The weight's gradient adds up in float32 or wider.
    """
    logprobs, entropies = _FromHead.apply(hidden, weight, bias, _Sampling(targets, temperature, masks))
    return logprobs, entropies if has_entropy_gradient else entropies.detach()


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The N tokens that were sampled, and how."""

    targets: Tensor
    temperature: float
    masks: Masks | None


class _FromLogits(torch.autograd.Function):
    """Keeps the logits. The backward pass recomputes the softmax."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, sampling: _Sampling) -> tuple[Tensor, Tensor]:
        figures = _Figures.for_rows_of(logits)
        for rows in _chunks(*logits.shape):
            figures.fill(rows, logits[rows], sampling)
        ctx.save_for_backward(logits, figures.normalizers, figures.entropies)
        ctx.sampling = sampling
        ctx.set_materialize_grads(False)
        return figures.logprobs, figures.entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logprobs: Tensor | None, d_entropies: Tensor | None) -> tuple[Tensor, None]:
        logits, normalizers, entropies = ctx.saved_tensors
        slopes = _Slopes(normalizers, entropies, d_logprobs, d_entropies)
        gradient = torch.empty_like(logits)
        for rows in _chunks(*logits.shape):
            gradient[rows] = slopes.of_logits(rows, logits[rows], ctx.sampling)
        return gradient, None


class _FromHead(torch.autograd.Function):
    """Keeps the head's inputs. The backward pass recomputes logits and softmax."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, sampling: _Sampling
    ) -> tuple[Tensor, Tensor]:
        figures = _Figures.for_rows_of(hidden)
        for rows in _chunks(len(hidden), len(weight)):
            figures.fill(rows, _logits(hidden[rows], weight, bias), sampling)
        ctx.save_for_backward(hidden, weight, bias, figures.normalizers, figures.entropies)
        ctx.sampling = sampling
        ctx.set_materialize_grads(False)
        return figures.logprobs, figures.entropies

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_logprobs: Tensor | None, d_entropies: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        hidden, weight, bias, normalizers, entropies = ctx.saved_tensors
        slopes = _Slopes(normalizers, entropies, d_logprobs, d_entropies)
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight, dtype=normalizers.dtype) if ctx.needs_input_grad[1] else None
        d_bias = torch.zeros_like(bias, dtype=normalizers.dtype) if ctx.needs_input_grad[2] else None
        for rows in _chunks(len(hidden), len(weight)):
            logits = _logits(hidden[rows], weight, bias)
            gradient = slopes.of_logits(rows, logits, ctx.sampling).to(logits.dtype)
            d_hidden[rows] = gradient @ weight
            if d_weight is not None:
                d_weight += gradient.T @ hidden[rows]
            if d_bias is not None:
                d_bias += gradient.sum(0)
        return (
            d_hidden,
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None else d_bias.to(bias.dtype),
            None,
        )


@dataclass(frozen=True, slots=True)
class _Figures:
    """Results of the forward pass for each token, [N], in float32 or wider."""

    normalizers: Tensor
    logprobs: Tensor
    entropies: Tensor

    @classmethod
    def for_rows_of(cls, like: Tensor) -> "_Figures":
        wide = torch.promote_types(like.dtype, torch.float32)
        return cls(*(torch.empty(len(like), dtype=wide, device=like.device) for _ in range(3)))

    def fill(self, rows: slice, logits: Tensor, sampling: _Sampling) -> None:
        scaled = _hide(logits.to(self.normalizers.dtype) / sampling.temperature, rows, sampling.masks)
        self.normalizers[rows] = scaled.logsumexp(-1)
        log_probabilities = _normalized(scaled, self.normalizers[rows])
        self.logprobs[rows] = log_probabilities.gather(-1, sampling.targets[rows, None])[:, 0]
        self.entropies[rows] = -(log_probabilities.exp() * log_probabilities).sum(-1)


@dataclass(frozen=True, slots=True)
class _Slopes:
    """Gradients of logprobs and entropies [N], and what turns them into that of the logits.

    d log p(t) / dz_j = [j = t] - p_j; d H / dz_j = -p_j (log p_j + H).
    """

    normalizers: Tensor
    entropies: Tensor
    d_logprobs: Tensor | None
    d_entropies: Tensor | None

    def of_logits(self, rows: slice, logits: Tensor, sampling: _Sampling) -> Tensor:
        """Return the gradient of these rows' logits, in float32 or wider."""
        scaled = _hide(logits.to(self.normalizers.dtype) / sampling.temperature, rows, sampling.masks)
        log_probabilities = _normalized(scaled, self.normalizers[rows])
        entropy_gradient = log_probabilities.exp()
        own = torch.zeros_like(self.normalizers[rows]) if self.d_logprobs is None else self.d_logprobs[rows]
        factor = own[:, None]
        if self.d_entropies is not None:
            factor = factor + self.d_entropies[rows, None] * (log_probabilities + self.entropies[rows, None])
        entropy_gradient *= -factor
        entropy_gradient.scatter_add_(-1, sampling.targets[rows, None], own[:, None])
        return entropy_gradient / sampling.temperature


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return hidden @ weight.T if bias is None else torch.addmm(bias, hidden, weight.T)


def _hide(scaled: Tensor, rows: slice, masks: Masks | None) -> Tensor:
    """Set what the masks of these rows do not allow to minus infinity; changes its argument."""
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
    """Normalize the argument itself. Tokens that cannot be sampled get a finite log probability, because 0 × -inf is
    NaN."""
    scaled -= normalizers[:, None]
    return scaled.clamp_(min=LEAST_LOGPROB)


def _chunks(num_tokens: int, num_logits: int) -> Iterator[slice]:
    num_rows = max(1, CHUNK_ELEMENTS // max(1, num_logits))
    return (slice(start, start + num_rows) for start in range(0, num_tokens, num_rows))
