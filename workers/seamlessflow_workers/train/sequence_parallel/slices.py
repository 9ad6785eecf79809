"""Cuts rows of tokens into one slice for each rank of a sequence group; takes and returns numpy arrays.

Rows are padded on the right to a multiple of the number of ranks. Slices are contiguous and equally long, in the order
of the ranks. Where tokens are trained is another matter, so predictions are dealt out equally before the output head.
Invariant: each token, and each prediction, is in the slice of exactly one rank, and in the deal of exactly one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Deal:
    """Which m of all N predictions one rank's output head computes: as many as any other's, or one more or less."""

    predictions: Ints  # [m]
    num_sent: list[int]  # to each rank, of the n predictions made from this rank's tokens, in their order
    num_received: list[int]  # from each rank; in the order of the ranks they are the m


@dataclass(frozen=True, slots=True)
class TokenSlice:
    """One rank's slice of R rows, with the n predictions that are made from its tokens."""

    token_ids: Ints  # [R, L / ranks]
    positions: Ints  # [1, L / ranks] each token's position on its own path; 0 for padding
    predictions: Ints  # [n] which of the rows' N predictions
    columns: Ints  # [n] where in the slice
    deal: Deal


def rows_pad(token_ids: Ints, num_ranks: int) -> Ints:
    """Return rows [R, L] padded with 0 to the next length that the number of ranks divides."""
    num_missing = -token_ids.shape[1] % num_ranks
    return np.pad(token_ids, ((0, 0), (0, num_missing))) if num_missing else token_ids


def token_slice(
    token_ids: Ints, columns: Ints, *, rank: int, num_ranks: int, positions: Ints | None = None
) -> TokenSlice:
    """Return the slice of `rank` from padded rows [R, L], whose N predictions are made in `columns` [N].

    `positions` [T] are those of a flat tree; without them, each row is one path.
    """
    length = token_ids.shape[1] // num_ranks
    here = slice(rank * length, (rank + 1) * length)
    predictions = np.flatnonzero((columns >= here.start) & (columns < here.stop))
    if positions is None:
        own_positions = np.arange(here.start, here.stop)
    else:
        own_positions = np.zeros(length, dtype=np.int64)
        found = positions[here]
        own_positions[: len(found)] = found
    return TokenSlice(
        token_ids=token_ids[:, here],
        positions=own_positions[None],
        predictions=predictions,
        columns=columns[predictions] - here.start,
        deal=_deal(columns // length, rank=rank, num_ranks=num_ranks),
    )


def _deal(owners: Ints, *, rank: int, num_ranks: int) -> Deal:
    """Cut the N predictions, in the order of the ranks that own their tokens [N], into equal chunks."""
    num_owned = np.bincount(owners, minlength=num_ranks)
    ends = num_owned.cumsum()[:, None]
    starts = ends - num_owned[:, None]
    bounds = len(owners) * np.arange(num_ranks + 1) // num_ranks
    num_moved = (np.minimum(ends, bounds[1:]) - np.maximum(starts, bounds[:-1])).clip(min=0)  # [from, to]
    return Deal(
        predictions=np.argsort(owners, kind="stable")[bounds[rank] : bounds[rank + 1]],
        num_sent=num_moved[rank].tolist(),
        num_received=num_moved[:, rank].tolist(),
    )
