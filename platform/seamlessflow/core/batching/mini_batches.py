"""Cuts a batch into mini-batches, one for each optimizer step, and orders the steps. Pure and deterministic.

It takes the group of each sample and returns which samples each mini-batch contains. Whole groups are dealt out, so
trees and sessions stay whole. Order and cut depend only on the job's seed and the number of the batch: every rank
computes the same ones, and a trainer that starts again after a kill repeats them to the bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MiniBatchStep:
    """One optimizer step of a batch."""

    offset: int  # optimizer steps of the batch before it, those without work included
    mini_batch: int


def mini_batches_cut(
    groups: NDArray[np.int32], num_mini_batches: int, *, seed: int, batch_number: int
) -> list[NDArray[np.bool_]]:
    """Return the samples of each mini-batch, [S] each, from the group of each sample, [S].

    The groups are shuffled and dealt out in equal numbers, or one more to the first ones. With fewer groups than
    mini-batches, which a filter may cause, the last ones are empty. One mini-batch is the whole batch.
    """
    if num_mini_batches == 1:
        return [np.ones(len(groups), dtype=np.bool_)]
    shuffled = np.random.default_rng([seed, batch_number]).permutation(np.unique(groups))
    return [np.isin(groups, chosen) for chosen in np.array_split(shuffled, num_mini_batches)]


def mini_batch_steps(
    has_work: Sequence[bool], num_epochs: int, *, seed: int, batch_number: int
) -> list[MiniBatchStep]:
    """Return the optimizer steps of a batch, in order, from whether each mini-batch has anything to train.

    Each epoch passes over all mini-batches: the first in the order of the cut, the others in an order of their own.
    """
    steps = []
    for epoch in range(num_epochs):
        order = range(len(has_work))
        if epoch:
            order = np.random.default_rng([seed, batch_number, epoch]).permutation(len(has_work)).tolist()
        steps += [
            MiniBatchStep(epoch * len(has_work) + offset, index)
            for offset, index in enumerate(order)
            if has_work[index]
        ]
    return steps
