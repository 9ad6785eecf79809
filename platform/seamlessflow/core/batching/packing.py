"""Groups samples of trees into packs within a token budget, and deals packs to ranks. Pure and deterministic.

A pack is the input of one forward and backward pass: some samples and, as context, all tokens before them on their
paths, each once. A tree within the budget stays whole. A larger tree is cut between branches in depth-first order, and
each pack computes the shared tokens again. Packs are then joined, largest first, wherever they fit (first-fit
decreasing). Finding the best cut is NP-hard ("Tree Training", arXiv 2511.00413); this one is linear in the samples.

Invariants: every sample is in exactly one pack; a pack stays within the budget unless it is one sample whose path alone
is longer; ranks get equally many packs except in the last round, and their loads differ by at most the largest pack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.trajectory.tree_layout import NO_PARENT, TreeLayout

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pack:
    """`tokens` are all tokens to compute, in rising order, including all tokens before the samples on their paths."""

    samples: tuple[int, ...]
    tokens: Ints

    def layout(self, whole: TreeLayout) -> tuple[TreeLayout, Ints]:
        """Return the pack's own trees and each token's predecessor in the pack (NO_PARENT if it has none)."""
        before = whole.predecessors[self.tokens]
        parents = np.where(before == NO_PARENT, NO_PARENT, np.searchsorted(self.tokens, before))
        begins = (parents == NO_PARENT) | (parents != np.arange(-1, len(parents) - 1))
        starts = np.append(np.flatnonzero(begins), len(parents))
        return TreeLayout(starts, parents[starts[:-1]]), parents


def pack_samples(layout: TreeLayout, num_inputs: Mapping[int, int], budget: int) -> list[Pack]:
    """Pack the samples in `num_inputs`, which gives for each sample how many of its own tokens are needed."""
    paths = list(layout.paths())
    packs: list[Pack] = []
    for tree in layout.trees():
        wanted = [sample for sample in range(tree.start, tree.stop) if sample in num_inputs]
        needs = {sample: _cut(paths[sample], num_inputs[sample]) for sample in wanted}
        packs += _tree_packs(wanted, needs, layout.num_tokens, budget)
    packs.sort(key=lambda pack: (-len(pack.tokens), pack.samples))
    return [_union(bin_packs) for bin_packs in _first_fit(packs, budget)]


def deal(costs: Sequence[float], num_ranks: int) -> list[list[int]]:
    """Return indices of packs for each rank, equally many except in the last round; loads differ by at most max(costs).

    Packs are dealt in rounds of `num_ranks`, largest first; the largest of a round goes to the rank with the least
    load.
    """
    ranks: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [0.0] * num_ranks
    order = sorted(range(len(costs)), key=lambda index: (-costs[index], index))
    for first in range(0, len(order), num_ranks):
        by_load = sorted(range(num_ranks), key=lambda rank: (loads[rank], rank))
        for rank, index in zip(by_load, order[first : first + num_ranks], strict=False):
            ranks[rank].append(index)
            loads[rank] += costs[index]
    return ranks


def _cut(path: list[slice], num_inputs: int) -> list[slice]:
    """Return the whole path, with only the first `num_inputs` of the sample's own tokens."""
    own = path[-1]
    return [*path[:-1], slice(own.start, own.start + num_inputs)]


def _tree_packs(wanted: list[int], needs: dict[int, list[slice]], num_tokens: int, budget: int) -> list[Pack]:
    packs: list[Pack] = []
    samples: list[int] = []
    is_packed = np.zeros(num_tokens, dtype=np.bool_)
    num_packed = 0
    for sample in wanted:
        num_new = sum(int((~is_packed[segment]).sum()) for segment in needs[sample])
        if samples and num_packed + num_new > budget:
            packs.append(Pack(tuple(samples), np.flatnonzero(is_packed)))
            samples, num_packed = [], 0
            is_packed[:] = False
            num_new = sum(segment.stop - segment.start for segment in needs[sample])
        for segment in needs[sample]:
            is_packed[segment] = True
        samples.append(sample)
        num_packed += num_new
    if samples:
        packs.append(Pack(tuple(samples), np.flatnonzero(is_packed)))
    return packs


def _first_fit(packs: list[Pack], budget: int) -> list[list[Pack]]:
    bins: list[list[Pack]] = []
    loads: list[int] = []
    for pack in packs:
        size = len(pack.tokens)
        index = next((index for index, load in enumerate(loads) if load + size <= budget), len(bins))
        if index == len(bins):
            bins.append([])
            loads.append(0)
        bins[index].append(pack)
        loads[index] += size
    return bins


def _union(packs: list[Pack]) -> Pack:
    samples = sorted(sample for pack in packs for sample in pack.samples)
    return Pack(tuple(samples), np.unique(np.concatenate([pack.tokens for pack in packs])))
