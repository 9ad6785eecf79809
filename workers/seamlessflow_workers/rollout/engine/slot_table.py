"""The contents of each row of the KV cache, and the search for a row that begins like a new prompt.

A row stays known after its sequence ends, so that the next turn of a session, or a sibling of its group, finds its
prefix. Invariants: `num_valid` ≤ `num_known`; tokens below `num_valid` have their KV computed under the row's salt;
rows of different salts never serve one another; a row without a salt serves no other request.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# With fewer tokens neither a copy nor waiting for a sibling is worthwhile.
MIN_SHARED_TOKENS = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """`num_valid` tokens of `row` may be copied now; `num_coming` will be once a sibling's prefill has run."""

    row: int
    num_valid: int
    num_coming: int


class SlotTable:
    def __init__(self, *, num_rows: int, max_model_len: int) -> None:
        self.tokens: NDArray[np.int32] = np.zeros((num_rows, max_model_len), dtype=np.int32)
        self.num_known: NDArray[np.int64] = np.zeros(num_rows, dtype=np.int64)
        self.num_valid: NDArray[np.int64] = np.zeros(num_rows, dtype=np.int64)
        self.salts: list[str | None] = [None] * num_rows
        self.is_live: list[bool] = [False] * num_rows
        self.used_at: list[int] = [0] * num_rows
        self._clock = 0

    def find_prefix(self, tokens: NDArray[np.int32], *, salt: str) -> PrefixMatch:
        rows = np.array([row for row, known in enumerate(self.salts) if known == salt], dtype=np.int64)
        if len(rows) == 0 or len(tokens) == 0:
            return PrefixMatch(row=-1, num_valid=0, num_coming=0)
        differs = self.tokens[rows, : len(tokens)] != tokens
        common = np.where(differs.any(axis=1), differs.argmax(axis=1), len(tokens))
        known = np.minimum(common, self.num_known[rows])
        valid = np.minimum(known, self.num_valid[rows])
        best = int(valid.argmax())
        live = np.array([self.is_live[row] for row in rows])
        coming = int(np.where(live, known, 0).max())
        return PrefixMatch(row=int(rows[best]), num_valid=int(valid[best]), num_coming=coming)

    def choose_row(self, *, source: int, num_shared: int) -> int:
        """Return a free row for a new sequence: the source itself if hardly anything else in it would be lost."""
        free = [row for row, live in enumerate(self.is_live) if not live]
        if source in free and self.num_valid[source] - num_shared <= MIN_SHARED_TOKENS:
            return source
        return min(free, key=lambda row: (self.num_valid[row] > 0, self.used_at[row], row))

    def occupy(self, row: int, *, tokens: NDArray[np.int32], num_valid: int, salt: str) -> None:
        self._clock += 1
        self.tokens[row, : len(tokens)] = tokens
        self.num_known[row] = len(tokens)
        self.num_valid[row] = num_valid
        self.salts[row] = salt
        self.is_live[row] = True
        self.used_at[row] = self._clock

    def vacate(self, row: int) -> None:
        """Free the row; its keys and values can still be found."""
        self._clock += 1
        self.is_live[row] = False
        self.used_at[row] = self._clock
        self.num_known[row] = self.num_valid[row]

    def forget_free(self) -> None:
        """Forget the contents of free rows; live rows go on, but nothing is copied from them any more."""
        for row, live in enumerate(self.is_live):
            self.salts[row] = None
            if not live:
                self.num_known[row] = self.num_valid[row] = 0

    def swap(self, first: int, second: int) -> int:
        """Swap two rows; return how many leading positions of KV the caller must swap as well."""
        pair, swapped = [first, second], [second, first]
        length = int(self.num_valid[pair].max())
        for array in (self.tokens, self.num_known, self.num_valid):
            array[pair] = array[swapped]
        _exchange(self.salts, first, second)
        _exchange(self.is_live, first, second)
        _exchange(self.used_at, first, second)
        return length


def _exchange(values: list[T], first: int, second: int) -> None:
    values[first], values[second] = values[second], values[first]
