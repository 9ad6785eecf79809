"""Waiting times that double with each failure, with jitter so that machines do not return at the same time."""

import random


class Backoff:
    def __init__(self, *, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._num_failures = 0

    def next_s(self) -> float:
        """Return the next wait, half of it random."""
        full_s = min(self._first_s * float(2**self._num_failures), self._longest_s)
        self._num_failures = min(self._num_failures + 1, 30)
        return full_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._num_failures = 0
