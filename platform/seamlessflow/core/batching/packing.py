"""Groups samples of trees into packs within a token budget, and deals packs to ranks. Pure and deterministic.

A pack is the input of one forward and backward pass: some samples and, as context, all tokens before them on their
paths, each once. A tree within the budget stays whole. A larger tree is cut between branches in depth-first order, and
each part computes the shared tokens again. Parts are then packed together, largest first, wherever they fit (first-fit
decreasing). Finding the best cut is NP-hard ("Tree Training", arXiv 2511.00413); this one is linear in the samples.

Invariants: every sample is in exactly one pack; a pack stays within the budget unless it is one sample whose path alone
is longer; ranks get equally many packs except in the last round, and their loads differ by at most the largest pack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.batching.tree_layout import NO_PARENT, TreeLayout

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
    parts: list[Pack] = []
    for tree in layout.trees():
        wanted = [sample for sample in range(tree.start, tree.stop) if sample in num_inputs]
        needs = {sample: _cut(paths[sample], num_inputs[sample]) for sample in wanted}
        parts += _tree_parts(wanted, needs, layout.num_tokens, budget)
    parts.sort(key=lambda part: (-len(part.tokens), part.samples))
    return [_union(bin_parts) for bin_parts in _first_fit(parts, budget)]


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


def _tree_parts(wanted: list[int], needs: dict[int, list[slice]], num_tokens: int, budget: int) -> list[Pack]:
    parts: list[Pack] = []
    samples: list[int] = []
    is_held = np.zeros(num_tokens, dtype=np.bool_)
    num_held = 0
    for sample in wanted:
        num_new = sum(int((~is_held[piece]).sum()) for piece in needs[sample])
        if samples and num_held + num_new > budget:
            parts.append(Pack(tuple(samples), np.flatnonzero(is_held)))
            samples, num_held = [], 0
            is_held[:] = False
            num_new = sum(piece.stop - piece.start for piece in needs[sample])
        for piece in needs[sample]:
            is_held[piece] = True
        samples.append(sample)
        num_held += num_new
    if samples:
        parts.append(Pack(tuple(samples), np.flatnonzero(is_held)))
    return parts


def _first_fit(parts: list[Pack], budget: int) -> list[list[Pack]]:
    bins: list[list[Pack]] = []
    loads: list[int] = []
    for part in parts:
        size = len(part.tokens)
        place = next((place for place, load in enumerate(loads) if load + size <= budget), len(bins))
        if place == len(bins):
            bins.append([])
            loads.append(0)
        bins[place].append(part)
        loads[place] += size
    return bins


def _union(parts: list[Pack]) -> Pack:
    samples = sorted(sample for part in parts for sample in part.samples)
    return Pack(tuple(samples), np.unique(np.concatenate([part.tokens for part in parts])))
