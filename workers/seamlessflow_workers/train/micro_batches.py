"""Cuts a packed batch into padded micro-batches of bounded size: numpy in, numpy out.

The loss is normalised by the weight of the *whole* batch's trained tokens (`loss_weight`), so neither the cut nor
leaving out samples without a gradient changes it. Rows end where their last prediction is needed; right padding stands
behind every token that counts, so causal attention needs no mask. The same batch always gives the same cut.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.staleness import admitted_samples, sample_lags
from seamlessflow.core.batching.format import Batch


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """R rows of up to L inputs; N trained tokens, each predicted at (rows[i], columns[i])."""

    token_ids: NDArray[np.int64]  # [R, L], padded with 0
    rows: NDArray[np.int64]  # [N]
    columns: NDArray[np.int64]  # [N] position of the logits, one before the token itself
    targets: NDArray[np.int64]  # [N]
    behaviour_logprobs: NDArray[np.float32]  # [N]
    advantages_positive: NDArray[np.float32]  # [N]
    advantages_negative: NDArray[np.float32]  # [N]
    loss_weights: NDArray[np.float32]  # [N]
    versions: NDArray[np.int32]  # [N]


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """What one training step will do with a batch."""

    micro_batches: list[MicroBatch]
    num_tokens: int
    num_trained_tokens: int  # of admitted samples
    loss_weight: float  # of their tokens: the denominator of the loss
    num_stale_samples: int  # left out by the staleness rule
    staleness_mean: float | None  # over trained samples, by their oldest token; None: nothing trained
    staleness_max: int | None


def plan_batch(
    batch: Batch, *, step_version: int, max_staleness: int, micro_batch_tokens: int, is_kl_on: bool
) -> TrainPlan:
    """Judge staleness now, then cut. Samples without any advantage are skipped unless the KL term needs them."""
    starts, mask = batch.sample_starts, batch.loss_mask != 0
    if mask[starts[:-1][np.diff(starts) > 0]].any():
        raise ValueError(
            f"batch {batch.header.number} trains the first token of a sample, which nothing predicts"
        )
    lags = sample_lags(
        sample_starts=starts, loss_mask=batch.loss_mask, versions=batch.versions, step_version=step_version
    )
    counts = _sums_by_sample(mask.astype(np.int64), starts)
    is_trained = counts > 0
    is_admitted = admitted_samples(lags, max_staleness=max_staleness) & is_trained
    has_advantage = (batch.advantages_positive != 0) | (batch.advantages_negative != 0)
    has_gradient = _sums_by_sample((mask & has_advantage).astype(np.int64), starts) > 0
    computed = np.flatnonzero(is_admitted & (has_gradient | is_kl_on))
    oldest = lags.oldest[is_admitted]
    return TrainPlan(
        micro_batches=[_build(batch, samples) for samples in _cut(batch, computed, micro_batch_tokens)],
        num_tokens=len(batch.token_ids),
        num_trained_tokens=int(counts[is_admitted].sum()),
        loss_weight=float(_sums_by_sample(batch.loss_weights, starts)[is_admitted].sum()),
        num_stale_samples=int((is_trained & ~is_admitted).sum()),
        staleness_mean=float(oldest.mean()) if len(oldest) else None,
        staleness_max=int(oldest.max()) if len(oldest) else None,
    )


def _sums_by_sample(values: NDArray[Any], starts: NDArray[np.int32]) -> NDArray[np.float64]:
    totals = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    sums: NDArray[np.float64] = totals[starts[1:]] - totals[starts[:-1]]
    return sums


def _num_inputs(batch: Batch, sample: int) -> int:
    """Inputs needed: up to the one that predicts the last trained token."""
    span = slice(batch.sample_starts[sample], batch.sample_starts[sample + 1])
    return int(np.flatnonzero(batch.loss_mask[span])[-1])


def _cut(batch: Batch, samples: NDArray[np.int64], micro_batch_tokens: int) -> Iterable[list[int]]:
    """Longest first, rows × longest within the budget; a longer sample goes alone."""
    lengths = {int(sample): _num_inputs(batch, int(sample)) for sample in samples}
    ordered = sorted(lengths, key=lambda sample: (-lengths[sample], sample))
    while ordered:
        num_rows = max(1, micro_batch_tokens // lengths[ordered[0]])
        yield ordered[:num_rows]
        ordered = ordered[num_rows:]


def _build(batch: Batch, samples: list[int]) -> MicroBatch:
    lengths = [_num_inputs(batch, sample) for sample in samples]
    token_ids = np.zeros((len(samples), max(lengths)), dtype=np.int64)
    rows, columns, places = [], [], []
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        start = int(batch.sample_starts[sample])
        token_ids[row, :length] = batch.token_ids[start : start + length]
        trained = np.flatnonzero(batch.loss_mask[start : start + length + 1])
        rows.append(np.full(len(trained), row))
        columns.append(trained - 1)
        places.append(start + trained)
    place = np.concatenate(places)
    return MicroBatch(
        token_ids=token_ids,
        rows=np.concatenate(rows),
        columns=np.concatenate(columns),
        targets=batch.token_ids[place].astype(np.int64),
        behaviour_logprobs=batch.behaviour_logprobs[place],
        advantages_positive=batch.advantages_positive[place],
        advantages_negative=batch.advantages_negative[place],
        loss_weights=batch.loss_weights[place],
        versions=batch.versions[place],
    )
