"""Cuts a packed batch into micro-batches of bounded size; takes and returns numpy arrays.

Tokens carry their weight in the loss of their whole mini-batch (`core.algorithms.aggregation`), so neither the cut nor
leaving out samples without a gradient changes the loss. There are two forms. Flat trees (`core.batching.packing`) are
one row without padding in which each token is computed once. Rows have one branch each, up to its last needed
prediction, padded on the right behind every token that counts, so that causal attention needs no mask. The same batch
always gives the same cut. Every rank of a process group cuts the whole batch alike and takes its own micro-batches of
the result; nothing is sent.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.aggregation import token_scales
from seamlessflow.core.algorithms.options import KlPlacement, StalenessScope
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.algorithms.staleness import SampleLags, sample_lags
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.batching.packing import Pack, deal, pack_samples
from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout
from seamlessflow_workers.train.sequence_parallel.slices import rows_pad
from seamlessflow_workers.train.step.guide_masks import BatchMasks, TokenMasks

# Solved and hopeless groups have another entropy than the rest, so metrics without them would describe only tasks about
# which the policy is unsure. Late in a small job, when most samples have no advantage, measuring all of them took 32 %
# of the trainer's time.
MEASURED_STRIDE = 4


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """R rows of up to L inputs; N trained tokens, each predicted at (rows[i], columns[i]). R is 1 with a `tree`."""

    token_ids: NDArray[
        np.int64
    ]  # [R, L], padded with 0; a tree too, to a length that the number of its ranks divides
    rows: NDArray[np.int64]  # [N]
    columns: NDArray[np.int64]  # [N] position of the logits: that of the previous token on the same path
    targets: NDArray[np.int64]  # [N]
    behaviour_logprobs: NDArray[np.float32]  # [N]
    # The next three are scaled by the token's weight in the loss.
    advantages_positive: NDArray[np.float32]  # [N]
    advantages_negative: NDArray[np.float32]  # [N]
    loss_weights: NDArray[np.float32]  # [N]
    versions: NDArray[np.int32]  # [N]
    token_indices: NDArray[np.int64]  # [N] index of the token in the batch
    sequences: NDArray[np.int64]  # [N] 0, 1, … the micro-batch's sample that the token belongs to
    num_sequences: int
    tree: TreeLayout | None = None
    masks: TokenMasks | None = None  # None: all N tokens were sampled freely

    @property
    def num_row_tokens(self) -> int:
        """The length of each row as attention sees it."""
        return self.token_ids.shape[1] if self.tree is None else self.tree.num_tokens


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """What training on a batch will do."""

    mini_batches: list[list[MicroBatch]]  # the micro-batches of each optimizer step; some may have none
    measured: list[MicroBatch]  # some trained tokens without a gradient, computed for the metrics only
    measured_weight: (
        float  # of each of these tokens in the metrics: it stands for those that are not computed
    )
    num_tokens: int
    num_linear_tokens: int  # if every branch were written out
    num_trained_tokens: int  # admitted by the staleness rule
    num_stale_samples: int  # excluded by the staleness rule
    num_stale_tokens: int  # of excluded samples, or excluded themselves
    staleness_mean: float | None  # over trained samples, by their oldest token; None: nothing is trained
    staleness_max: int | None

    @property
    def micro_batches(self) -> list[MicroBatch]:
        """Return the micro-batches of all mini-batches."""
        return [micro for mini in self.mini_batches for micro in mini]


def plan_batch(
    batch: Batch,
    *,
    step_version: int,
    algorithm: AlgorithmSection,
    aggregation_constant: float,
    micro_batch_tokens: int,
    computes_all: bool = False,
    is_tree: bool = False,
    is_offline: bool = False,
    masks: BatchMasks | None = None,
    num_sharing: int = 1,
    mini_batches: Sequence[NDArray[np.bool_]] = (),
) -> TrainPlan:
    """Apply the staleness rule, weight the tokens, and cut the batch. `masks`: those of its guided answers.

    `mini_batches`: the samples of each, [S], which together are all of them; none means that the batch is one.

    Samples without any advantage get no backward pass, unless KL, entropy or a critic needs one or `computes_all`. One
    in MEASURED_STRIDE of them is measured, others in each batch. Data that other jobs recorded (`is_offline`) has no
    version of this job, so it is never stale. The length of rows is a multiple of `num_sharing`.
    Raises ValueError if the batch trains a token that nothing predicts, or contains trees while `is_tree` is false.
    """
    starts, mask, layout = batch.sample_starts, batch.loss_mask != 0, batch.layout
    if mask[layout.predecessors == NO_PARENT].any():
        raise ValueError(
            f"batch {batch.header.number} trains the first token of a sample, which nothing predicts"
        )
    if not is_tree and (layout.sample_parents != NO_PARENT).any():
        raise ValueError(
            f"batch {batch.header.number} contains trees, but this trainer computes branches only"
        )
    lags = sample_lags(
        sample_starts=starts, loss_mask=batch.loss_mask, versions=batch.versions, step_version=step_version
    )
    is_trained = _sums_by_sample(mask.astype(np.int64), starts) > 0
    admitted = mask if is_offline else mask & _admitted_tokens(batch, lags, algorithm, step_version)
    num_admitted = _sums_by_sample(admitted.astype(np.int64), starts)
    has_advantage = (batch.advantages_positive != 0) | (batch.advantages_negative != 0)
    has_gradient = _sums_by_sample((admitted & has_advantage).astype(np.int64), starts) > 0
    has_gradient |= computes_all or algorithm.entropy_coef > 0 or algorithm.needs_critic
    has_gradient |= algorithm.kl_coef > 0 and algorithm.kl_placement is KlPlacement.LOSS
    selections = mini_batches or [np.ones(batch.num_samples, dtype=np.bool_)]
    scales = [
        token_scales(
            weights=np.where(admitted & selected[layout.samples], batch.loss_weights, 0.0).astype(np.float64),
            sample_starts=starts,
            sample_sessions=batch.sessions,
            aggregation=algorithm.aggregation,
            constant=aggregation_constant,
        )
        for selected in selections
    ]
    computed, flat = (num_admitted > 0) & has_gradient, (num_admitted > 0) & ~has_gradient
    measured = _every_few(flat, batch.header.number)
    oldest = lags.oldest[(num_admitted > 0) & (not is_offline)]
    marked = _Marked(
        batch=batch,
        layout=layout,
        admitted=admitted,
        scales=np.sum(scales, axis=0),
        masks=masks,
        num_sharing=num_sharing,
    )
    return TrainPlan(
        mini_batches=[
            _micro_batches(marked, computed & selected, micro_batch_tokens, is_tree=is_tree)
            for selected in selections
        ],
        measured=_micro_batches(marked, measured, micro_batch_tokens, is_tree=is_tree),
        measured_weight=float(num_admitted[flat].sum() / num_admitted[measured].sum()) if flat.any() else 0.0,
        num_tokens=len(batch.token_ids),
        num_linear_tokens=layout.num_linear_tokens,
        num_trained_tokens=int(num_admitted.sum()),
        num_stale_samples=int((is_trained & (num_admitted == 0)).sum()),
        num_stale_tokens=int((mask & ~admitted).sum()),
        staleness_mean=float(oldest.mean()) if len(oldest) else None,
        staleness_max=int(oldest.max()) if len(oldest) else None,
    )


def _admitted_tokens(
    batch: Batch, lags: SampleLags, algorithm: AlgorithmSection, step_version: int
) -> NDArray[np.bool_]:
    """Return which tokens the staleness rule lets train, [T]."""
    if algorithm.off_policy.staleness_scope is StalenessScope.TOKEN:
        return algorithm.staleness_bound.admitted_tokens(batch.versions, step_version=step_version)
    samples = algorithm.staleness_bound.admitted_samples(lags)
    return np.repeat(samples, np.diff(batch.sample_starts))


def _every_few(is_wanted: NDArray[np.bool_], number: int) -> NDArray[np.bool_]:
    """Return one in MEASURED_STRIDE of the wanted samples [S], at least one if there are any, by the batch's number."""
    wanted = np.flatnonzero(is_wanted)
    chosen = np.zeros_like(is_wanted)
    if len(wanted):
        chosen[wanted[number % min(MEASURED_STRIDE, len(wanted)) :: MEASURED_STRIDE]] = True
    return chosen


def _sums_by_sample(values: NDArray[np.int64], starts: NDArray[np.int32]) -> NDArray[np.int64]:
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    sums: NDArray[np.int64] = totals[starts[1:]] - totals[starts[:-1]]
    return sums


@dataclass(frozen=True, slots=True)
class _Marked:
    """A batch with the decisions about its tokens."""

    batch: Batch
    layout: TreeLayout
    admitted: NDArray[np.bool_]  # [T]
    scales: NDArray[np.float64]  # [T]
    masks: BatchMasks | None
    num_sharing: int  # ranks that compute a row together


def _micro_batches(
    marked: _Marked, is_wanted: NDArray[np.bool_], micro_batch_tokens: int, *, is_tree: bool
) -> list[MicroBatch]:
    """Cut the samples marked in `is_wanted` [S], each of which has at least one admitted token."""
    starts = marked.batch.sample_starts
    lengths = {
        int(sample): _num_inputs(marked.admitted, starts, int(sample)) for sample in np.flatnonzero(is_wanted)
    }
    if is_tree:
        packs = pack_samples(marked.layout, lengths, micro_batch_tokens)
        return [_build_flat(marked, pack) for pack in packs]
    return [_build_rows(marked, lengths, samples) for samples in _cut(lengths, micro_batch_tokens)]


def _num_inputs(admitted: NDArray[np.bool_], starts: NDArray[np.int32], sample: int) -> int:
    """Return how many of its own inputs a sample needs: up to the one that predicts its last trained token."""
    return int(np.flatnonzero(admitted[starts[sample] : starts[sample + 1]])[-1])


def _cut(lengths: Mapping[int, int], micro_batch_tokens: int) -> Iterable[list[int]]:
    """Yield samples, longest first, with rows × longest within the budget; a longer sample is alone."""
    ordered = sorted(lengths, key=lambda sample: (-lengths[sample], sample))
    while ordered:
        num_rows = max(1, micro_batch_tokens // lengths[ordered[0]])
        yield ordered[:num_rows]
        ordered = ordered[num_rows:]


def _build_rows(marked: _Marked, lengths: Mapping[int, int], samples: list[int]) -> MicroBatch:
    batch = marked.batch
    token_ids = np.zeros((len(samples), max(lengths[sample] for sample in samples)), dtype=np.int64)
    rows, columns, token_indices = [], [], []
    for row, sample in enumerate(samples):
        start, length = int(batch.sample_starts[sample]), lengths[sample]
        token_ids[row, :length] = batch.token_ids[start : start + length]
        trained = np.flatnonzero(marked.admitted[start : start + length + 1])
        rows.append(np.full(len(trained), row))
        columns.append(trained - 1)
        token_indices.append(start + trained)
    row_numbers = np.concatenate(rows)
    return _micro_batch(
        marked,
        token_ids=token_ids,
        rows=row_numbers,
        columns=np.concatenate(columns),
        token_indices=np.concatenate(token_indices),
        sequences=row_numbers,
        num_sequences=len(samples),
    )


def _build_flat(marked: _Marked, pack: Pack) -> MicroBatch:
    batch, layout = marked.batch, marked.layout
    tree, _ = pack.layout(layout)
    token_indices = np.concatenate(
        [
            start + np.flatnonzero(marked.admitted[start:end])
            for start, end in (layout.sample_starts[sample : sample + 2] for sample in pack.samples)
        ]
    )
    return _micro_batch(
        marked,
        token_ids=batch.token_ids[pack.tokens].astype(np.int64)[None],
        rows=np.zeros(len(token_indices), dtype=np.int64),
        columns=np.searchsorted(pack.tokens, layout.predecessors[token_indices]),
        token_indices=token_indices,
        sequences=np.searchsorted(np.array(pack.samples), layout.samples[token_indices]),
        num_sequences=len(pack.samples),
        tree=tree,
    )


def _micro_batch(
    marked: _Marked,
    *,
    token_ids: NDArray[np.int64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    token_indices: NDArray[np.int64],
    sequences: NDArray[np.int64],
    num_sequences: int,
    tree: TreeLayout | None = None,
) -> MicroBatch:
    batch, scale = marked.batch, marked.scales[token_indices]
    return MicroBatch(
        token_ids=rows_pad(token_ids, marked.num_sharing),
        rows=rows,
        columns=columns,
        targets=batch.token_ids[token_indices].astype(np.int64),
        behaviour_logprobs=batch.behaviour_logprobs[token_indices],
        advantages_positive=(scale * batch.advantages_positive[token_indices]).astype(np.float32),
        advantages_negative=(scale * batch.advantages_negative[token_indices]).astype(np.float32),
        loss_weights=(scale * batch.loss_weights[token_indices]).astype(np.float32),
        versions=batch.versions[token_indices],
        token_indices=token_indices,
        sequences=sequences,
        num_sequences=num_sequences,
        tree=tree,
        masks=None if marked.masks is None else marked.masks.of(token_indices),
    )


def own_micro_batches(
    micro_batches: Sequence[MicroBatch], *, rank: int, num_ranks: int
) -> list[tuple[MicroBatch, bool]]:
    """Return one rank's micro-batches: (micro-batch, whether it counts). Ranks' tokens differ by at most the largest of
    them.

    All ranks get equally many, because they enter collectives together. A rank that would have fewer repeats the
    smallest one with weights of zero: it adds nothing to the gradient and does not count in the metrics.
    """
    if not micro_batches:
        return []
    sizes = [micro.token_ids.size for micro in micro_batches]
    dealt = deal(sizes, num_ranks)
    smallest = min(micro_batches, key=lambda micro: micro.token_ids.size)
    num_missing = max(map(len, dealt)) - len(dealt[rank])
    counted = [(micro_batches[index], True) for index in dealt[rank]]
    return counted + [(_silent(smallest), False)] * num_missing


def _silent(micro: MicroBatch) -> MicroBatch:
    nothing = micro.loss_weights * 0
    return dataclasses.replace(
        micro, advantages_positive=nothing, advantages_negative=nothing, loss_weights=nothing
    )
