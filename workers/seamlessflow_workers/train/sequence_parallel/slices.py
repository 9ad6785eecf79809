"""Cuts rows of tokens into one slice for each rank of a sequence group; takes and returns numpy arrays.

Rows are padded on the right to a multiple of the number of ranks. Slices are contiguous and equally long, in the order
of the ranks. Invariant: each token, and each prediction, is in the slice of exactly one rank.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenSlice:
    """One rank's part of R rows, with the n predictions that are made from its tokens."""

    token_ids: Ints  # [R, L / ranks]
    positions: Ints  # [1, L / ranks] each token's position on its own path; 0 for padding
    predictions: Ints  # [n] which of the rows' N predictions
    columns: Ints  # [n] where in the slice


def rows_pad(token_ids: Ints, num_ranks: int) -> Ints:
    """Return rows [R, L] padded with 0 to the next length that all ranks can share equally."""
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
    )
