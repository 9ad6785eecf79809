"""Cuts a packed batch into padded micro-batches of bounded size: numpy in, numpy out.

Tokens carry what they count for in the loss of the *whole* batch (`core.algorithms.aggregation`), so neither the cut
nor leaving out samples without a gradient changes it. Rows end where their last prediction is needed; right padding
stands behind every token that counts, so causal attention needs no mask. The same batch always gives the same cut.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.aggregation import token_scales
from seamlessflow.core.algorithms.options import KlPlacement, StalenessScope
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.algorithms.staleness import (
    SampleLags,
    admitted_samples,
    admitted_tokens,
    sample_lags,
)
from seamlessflow.core.batching.format import Batch


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """R rows of up to L inputs; N trained tokens, each predicted at (rows[i], columns[i])."""

    token_ids: NDArray[np.int64]  # [R, L], padded with 0
    rows: NDArray[np.int64]  # [N]
    columns: NDArray[np.int64]  # [N] position of the logits, one before the token itself
    targets: NDArray[np.int64]  # [N]
    behaviour_logprobs: NDArray[np.float32]  # [N]
    advantages_positive: NDArray[
        np.float32
    ]  # [N] these three: scaled to what the token counts for in the loss
    advantages_negative: NDArray[np.float32]  # [N]
    loss_weights: NDArray[np.float32]  # [N]
    versions: NDArray[np.int32]  # [N]
    places: NDArray[np.int64]  # [N] index of the token in the batch


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """What one training step will do with a batch."""

    micro_batches: list[MicroBatch]
    num_tokens: int
    num_trained_tokens: int  # admitted by the staleness rule
    num_stale_samples: int  # left out by the staleness rule
    num_stale_tokens: int  # of samples left out, or of their own
    staleness_mean: float | None  # over trained samples, by their oldest token; None: nothing trained
    staleness_max: int | None


def plan_batch(
    batch: Batch,
    *,
    step_version: int,
    algorithm: AlgorithmSection,
    aggregation_constant: float,
    micro_batch_tokens: int,
    computes_all: bool = False,
) -> TrainPlan:
    """Judge staleness now, weigh the tokens, then cut.

    Samples without any advantage are skipped unless KL or entropy need them, or `computes_all`.
    """
    starts, mask = batch.sample_starts, batch.loss_mask != 0
    if mask[starts[:-1][np.diff(starts) > 0]].any():
        raise ValueError(
            f"batch {batch.header.number} trains the first token of a sample, which nothing predicts"
        )
    lags = sample_lags(
        sample_starts=starts, loss_mask=batch.loss_mask, versions=batch.versions, step_version=step_version
    )
    is_trained = _sums_by_sample(mask.astype(np.int64), starts) > 0
    admitted = mask & _admitted_tokens(batch, lags, algorithm, step_version)
    num_admitted = _sums_by_sample(admitted.astype(np.int64), starts)
    has_advantage = (batch.advantages_positive != 0) | (batch.advantages_negative != 0)
    has_gradient = _sums_by_sample((admitted & has_advantage).astype(np.int64), starts) > 0
    has_gradient |= computes_all or algorithm.entropy_coef > 0
    has_gradient |= algorithm.kl_coef > 0 and algorithm.kl_placement is KlPlacement.LOSS
    scales = token_scales(
        weights=np.where(admitted, batch.loss_weights, 0.0).astype(np.float64),
        sample_starts=starts,
        sample_sessions=batch.sessions,
        aggregation=algorithm.aggregation,
        constant=aggregation_constant,
    )
    computed = np.flatnonzero((num_admitted > 0) & has_gradient)
    oldest = lags.oldest[num_admitted > 0]
    return TrainPlan(
        micro_batches=[
            _build(batch, admitted, scales, samples)
            for samples in _cut(admitted, starts, computed, micro_batch_tokens)
        ],
        num_tokens=len(batch.token_ids),
        num_trained_tokens=int(num_admitted.sum()),
        num_stale_samples=int((is_trained & (num_admitted == 0)).sum()),
        num_stale_tokens=int((mask & ~admitted).sum()),
        staleness_mean=float(oldest.mean()) if len(oldest) else None,
        staleness_max=int(oldest.max()) if len(oldest) else None,
    )


def _admitted_tokens(
    batch: Batch, lags: SampleLags, algorithm: AlgorithmSection, step_version: int
) -> NDArray[np.bool_]:
    """Which tokens the staleness rule lets train, [T]."""
    if algorithm.off_policy.staleness_scope is StalenessScope.TOKEN:
        return admitted_tokens(
            batch.versions, step_version=step_version, max_staleness=algorithm.max_staleness
        )
    samples = admitted_samples(lags, max_staleness=algorithm.max_staleness)
    return np.repeat(samples, np.diff(batch.sample_starts))


def _sums_by_sample(values: NDArray[np.int64], starts: NDArray[np.int32]) -> NDArray[np.int64]:
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    sums: NDArray[np.int64] = totals[starts[1:]] - totals[starts[:-1]]
    return sums


def _num_inputs(admitted: NDArray[np.bool_], starts: NDArray[np.int32], sample: int) -> int:
    """Inputs needed: up to the one that predicts the last trained token."""
    return int(np.flatnonzero(admitted[starts[sample] : starts[sample + 1]])[-1])


def _cut(
    admitted: NDArray[np.bool_],
    starts: NDArray[np.int32],
    samples: NDArray[np.int64],
    micro_batch_tokens: int,
) -> Iterable[list[int]]:
    """Longest first, rows × longest within the budget; a longer sample goes alone."""
    lengths = {int(sample): _num_inputs(admitted, starts, int(sample)) for sample in samples}
    ordered = sorted(lengths, key=lambda sample: (-lengths[sample], sample))
    while ordered:
        num_rows = max(1, micro_batch_tokens // lengths[ordered[0]])
        yield ordered[:num_rows]
        ordered = ordered[num_rows:]


def _build(
    batch: Batch, admitted: NDArray[np.bool_], scales: NDArray[np.float64], samples: list[int]
) -> MicroBatch:
    lengths = [_num_inputs(admitted, batch.sample_starts, sample) for sample in samples]
    token_ids = np.zeros((len(samples), max(lengths)), dtype=np.int64)
    rows, columns, places = [], [], []
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        start = int(batch.sample_starts[sample])
        token_ids[row, :length] = batch.token_ids[start : start + length]
        trained = np.flatnonzero(admitted[start : start + length + 1])
        rows.append(np.full(len(trained), row))
        columns.append(trained - 1)
        places.append(start + trained)
    place = np.concatenate(places)
    scale = scales[place]
    return MicroBatch(
        token_ids=token_ids,
        rows=np.concatenate(rows),
        columns=np.concatenate(columns),
        targets=batch.token_ids[place].astype(np.int64),
        behaviour_logprobs=batch.behaviour_logprobs[place],
        advantages_positive=(scale * batch.advantages_positive[place]).astype(np.float32),
        advantages_negative=(scale * batch.advantages_negative[place]).astype(np.float32),
        loss_weights=(scale * batch.loss_weights[place]).astype(np.float32),
        versions=batch.versions[place],
        places=place,
    )
