"""Lays trees of tokens out in one flat array: depth first, each token once.

A tree of conversations is cut into *samples*, one per branch. The first branch has its whole path. Every later branch
has only the tokens that no earlier branch has, and continues from a token of an earlier sample, its parent. In a
batch without any sharing, no sample has a parent.

    tokens   a b c d | e f | g          sample_starts   0 4 6 7
    sample      0       1    2          sample_parents  -1 2 0      paths: abcd, abcef, ag

Invariant (`TreeLayout` refuses anything else): the order is depth first, so a parent is on the path of the previous
sample. Therefore the descendants of a token are one contiguous range after it, and the branches through a token are one
contiguous range of samples. No loop over tokens runs in Python.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NO_PARENT = -1
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class InvalidTreeLayout(ValueError):
    """Starts and parents do not describe trees in depth-first order."""


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """T tokens in S samples. Computes the derived arrays at construction. Raises InvalidTreeLayout."""

    sample_starts: Ints  # [S + 1]
    sample_parents: Ints  # [S] the token that the sample continues from; NO_PARENT: it begins a tree
    positions: Ints = field(init=False)  # [T] tokens before it on its path
    # [T] u descends from t, or is t, iff t <= u < descendant_ends[t]
    descendant_ends: Ints = field(init=False)

    def __post_init__(self) -> None:
        lengths = np.diff(self.sample_starts)
        if len(self.sample_starts) != len(self.sample_parents) + 1 or self.sample_starts[0] != 0:
            raise InvalidTreeLayout("S samples need S + 1 starts, the first of them 0, and S parents")
        if (lengths <= 0).any():
            raise InvalidTreeLayout(f"sample {int(np.argmax(lengths <= 0))} has no token of its own")
        positions, ends = self._walk()
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "descendant_ends", ends)

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> "TreeLayout":
        """Make a layout of samples without common tokens."""
        starts = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
        return cls(starts, np.full(len(lengths), NO_PARENT))

    @property
    def num_tokens(self) -> int:
        return int(self.sample_starts[-1])

    @property
    def num_samples(self) -> int:
        return len(self.sample_parents)

    @property
    def num_linear_tokens(self) -> int:
        """Return the number of tokens if all branches were written out one by one."""
        ends = self.sample_starts[1:] - 1
        return int((self.positions[ends] + 1).sum())

    @property
    def predecessors(self) -> Ints:
        """Return the token before each token on its path, [T]; NO_PARENT at the beginning of a tree."""
        before = np.arange(-1, self.num_tokens - 1)
        before[self.sample_starts[:-1]] = self.sample_parents
        return before

    @property
    def samples(self) -> Ints:
        """Return the sample that contains each token, [T]."""
        return np.repeat(np.arange(self.num_samples), np.diff(self.sample_starts))

    @property
    def last_samples(self) -> Ints:
        """Return the last branch through each token, [T].

        The first is the sample that contains the token, and all branches in between go through it too.
        """
        last: Ints = np.searchsorted(self.sample_starts, self.descendant_ends, side="left") - 1
        return last

    def branch_sums(self, values: Floats) -> Floats:
        """Sum `values` [S] over the branches that go through each token, [T]."""
        totals = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        sums: Floats = totals[self.last_samples + 1] - totals[self.samples]
        return sums

    def paths(self) -> Iterator[list[slice]]:
        """Yield for each sample the contiguous segments of its whole branch, root first."""
        for _, segments in self._open_segments():
            yield [slice(start, end) for start, end in segments]

    def trees(self) -> list[slice]:
        """Return the samples of each tree."""
        roots = np.append(np.flatnonzero(self.sample_parents == NO_PARENT), self.num_samples)
        return [slice(int(first), int(end)) for first, end in pairwise(roots)]

    def _walk(self) -> tuple[Ints, Ints]:
        positions = np.empty(self.num_tokens, dtype=np.int64)
        ends = np.empty(self.num_tokens, dtype=np.int64)
        for closed, segments in self._open_segments():
            start, end = segments[-1]
            for segment_start, segment_end in closed:
                ends[segment_start:segment_end] = start
            depth = sum(segment_end - segment_start for segment_start, segment_end in segments[:-1])
            positions[start:end] = np.arange(depth, depth + end - start)
            ends[start:end] = self.num_tokens  # until a later sample closes it
        return positions, ends

    def _open_segments(self) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
        """Yield for each sample the segments that no later path has, and those of its own path (valid for one step)."""
        segments: list[tuple[int, int]] = []
        starts, parents = self.sample_starts.tolist(), self.sample_parents.tolist()
        for sample, parent in enumerate(parents):
            closed = []
            while segments and segments[-1][0] > parent:
                closed.append(segments.pop())
            if parent != NO_PARENT:
                if not segments or not segments[-1][0] <= parent < segments[-1][1]:
                    raise InvalidTreeLayout(
                        f"sample {sample} continues from token {parent}, which is not on the path of the sample before"
                    )
                start, end = segments.pop()
                segments.append((start, parent + 1))
                closed.append((parent + 1, end))
            segments.append((starts[sample], starts[sample + 1]))
            yield closed, segments
