"""Which rectangles of the attention matrix a flat tree needs: takes numpy arrays and returns index tables.

The input is a `TreeLayout` of T tokens, depth first. A token attends to itself and its ancestors, and the descendants
of a token are one range after it. So the ancestor mask is a sum of blocks that need no mask inside:

* a causal block for each sample: its tokens among themselves;
* a full rectangle for each stretch of a sample that later samples continue: its keys × all their queries.

Invariant: every pair (token, itself or an ancestor) lies in exactly one block, and no other pair does. S samples have
less than 2 S blocks, whatever the shape of the tree. For GPUs the same mask is available as tables of 128-token tiles.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.trajectory.tree_layout import TreeLayout

TILE = 128  # tokens along one side of a tile; flex-attention's default

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """All of these queries attend to all of these keys."""

    queries: slice
    keys: slice


@dataclass(frozen=True, slots=True)
class Tiles:
    """The mask as Q × K tiles, int32; `partial` tiles need the mask inside, `full` ones do not.

    Row q needs `*_counts[q]` tiles; their columns are `*_columns[q, :count]`.
    """

    partial_counts: NDArray[np.int32]  # [Q]
    partial_columns: NDArray[np.int32]  # [Q, K]
    full_counts: NDArray[np.int32]  # [Q]
    full_columns: NDArray[np.int32]  # [Q, K]


@dataclass(frozen=True)
class TreeBlocks:
    """Blocks of one flat tree (or several, one after the other)."""

    layout: TreeLayout

    @cached_property
    def causal(self) -> list[slice]:
        starts = self.layout.sample_starts.tolist()
        return [slice(start, end) for start, end in pairwise(starts)]

    @cached_property
    def rectangles(self) -> list[Rectangle]:
        ends = self.layout.descendant_ends
        found = []
        for own in self.causal:
            is_shared = ends[own] > own.stop
            # Along a sample ends only shrink: stretches of equal ends are the stretches between its forks.
            edges = np.flatnonzero(np.diff(np.concatenate([[-1], np.where(is_shared, ends[own], -1), [-1]])))
            for first, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                keys = slice(own.start + first, own.start + stop)
                if is_shared[first]:
                    found.append(Rectangle(queries=slice(own.stop, int(ends[keys.start])), keys=keys))
        return found

    @property
    def num_path_tokens_max(self) -> int:
        return int(self.layout.positions.max()) + 1

    def tiles(self, tile: int = TILE) -> Tiles:
        """Return the mask as tiles. The last tile may reach beyond the end, where nothing attends or is attended to."""
        num_tokens = self.layout.num_tokens
        num_tiles = -(-num_tokens // tile)
        starts = np.arange(num_tiles) * tile
        # A token beyond the end has neither ancestors nor descendants.
        ends = np.concatenate(
            [self.layout.descendant_ends, np.zeros(num_tiles * tile - num_tokens, dtype=np.int64)]
        )
        by_tile = ends.reshape(num_tiles, tile)
        widest, narrowest = by_tile.max(1), by_tile.min(1)
        last_query = np.minimum(starts + tile, num_tokens)
        is_below = starts[:, None] > starts[None, :]
        is_needed = np.eye(num_tiles, dtype=np.bool_) | (is_below & (widest[None, :] > starts[:, None]))
        is_full = (
            is_below & (narrowest[None, :] >= last_query[:, None]) & (last_query == starts + tile)[:, None]
        )
        partial_counts, partial_columns = _table(is_needed & ~is_full)
        full_counts, full_columns = _table(is_full)
        return Tiles(partial_counts, partial_columns, full_counts, full_columns)


def _table(is_set: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return for each row the number of set columns, and all columns with the set ones first."""
    return is_set.sum(1).astype(np.int32), np.argsort(~is_set, axis=1, kind="stable").astype(np.int32)
