"""Samples tokens from logits, a whole batch at once, with the logprobs of the distribution that was really sampled.

The order is vLLM's: biases and penalties, drop tokens that are forbidden or that a guide does not allow, temperature,
top-k, top-p, softmax.
A temperature below 1e-5 is greedy; its logprobs are those at temperature 1. Randomness enters as one number per row,
which becomes a token by inverting the cumulative distribution, so a row's draw does not depend on its neighbours.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seamlessflow.core.guidance.masks import unpacked_mask
from seamlessflow_workers.rollout.engine.runner import Reshaping, Sampled, SamplingBatch

GREEDY_BELOW = 1e-5


def sample(logits: Tensor, batch: SamplingBatch) -> Sampled:
    """Sample one token per entry. `logits` is [entries, vocabulary], of any float type."""
    logits = logits.float()
    for entry, reshaping in batch.reshaped:
        _reshape(logits[entry], reshaping)
    for entry, token_ids in batch.forbidden:
        logits[entry, list(token_ids)] = -torch.inf
    for entry, mask in batch.allowed:
        is_allowed = torch.from_numpy(unpacked_mask(mask, num_tokens=logits.shape[1]))
        logits[entry].masked_fill_(~is_allowed.to(logits.device), -torch.inf)
    is_greedy = batch.temperature < GREEDY_BELOW
    if not (batch.temperature == 1).all():
        divisor = np.where(is_greedy, np.float32(1), batch.temperature)
        logits = logits / _column(divisor, logits)
    is_truncated = ~is_greedy & ((batch.top_p < 1) | (batch.top_k > 0))
    if is_truncated.any():
        rows = torch.from_numpy(np.flatnonzero(is_truncated)).to(logits.device)
        top_p, top_k = batch.top_p[is_truncated], batch.top_k[is_truncated]
        logits = logits.index_copy(0, rows, _truncate(logits[rows], top_p=top_p, top_k=top_k))
    logprobs = logits.log_softmax(dim=-1)
    tokens = _draw(logprobs, batch.uniform)
    if is_greedy.any():
        greedy = torch.from_numpy(is_greedy).to(logits.device)
        tokens = torch.where(greedy, logprobs.argmax(dim=-1), tokens)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    if not batch.num_top:
        return Sampled(tokens=tokens.cpu().numpy(), logprobs=chosen.cpu().numpy())
    top = logprobs.topk(min(batch.num_top, logprobs.shape[1]), dim=-1)
    return Sampled(
        tokens=tokens.cpu().numpy(),
        logprobs=chosen.cpu().numpy(),
        top_ids=top.indices.cpu().numpy(),
        top_logprobs=top.values.cpu().numpy(),
    )


def _reshape(logits: Tensor, reshaping: Reshaping) -> None:
    """Apply biases and penalties to one row, [V], itself."""
    for token, bias in reshaping.bias.items():
        logits[token] += bias
    if reshaping.repetition != 1:
        seen = _index(np.union1d(reshaping.prompt, reshaping.generated), logits)
        old = logits[seen]
        logits[seen] = torch.where(old > 0, old / reshaping.repetition, old * reshaping.repetition)
    ids, counts = np.unique(reshaping.generated, return_counts=True)
    lessened = reshaping.frequency * counts.astype(np.float32) + np.float32(reshaping.presence)
    logits[_index(ids, logits)] -= torch.from_numpy(lessened).to(logits.device)


def _index(ids: NDArray[np.int32], logits: Tensor) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64)).to(logits.device)


def _draw(logprobs: Tensor, uniform: NDArray[np.float64]) -> Tensor:
    """Return the first token whose cumulative probability exceeds `uniform`, in float64 for long vocabularies."""
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    target = _column(uniform, logprobs) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0]


def _truncate(logits: Tensor, *, top_p: NDArray[np.float32], top_k: NDArray[np.int64]) -> Tensor:
    """Set logits to -inf outside the `top_k` likeliest and outside the smallest set whose mass reaches `top_p`."""
    ordered, order = logits.sort(dim=-1, descending=True)
    vocab_size = logits.shape[1]
    kept = np.where((top_k > 0) & (top_k < vocab_size), top_k, vocab_size)
    ranks = torch.arange(vocab_size, device=logits.device)
    ordered = ordered.masked_fill(ranks >= _column(kept, logits), -torch.inf)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    is_out = (before >= _column(top_p, logits)) & (ranks > 0)
    ordered = ordered.masked_fill(is_out, -torch.inf)
    return torch.empty_like(logits).scatter_(1, order, ordered)


def _column(values: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)[:, None]
