"""Penalties of sessions that sampled too many tokens: DAPO's soft one, and the rule for overlong sessions."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def soft_penalties(num_tokens: NDArray[np.int64], *, limit: int, buffer: float, penalty: float) -> Floats:
    """Return what to add to the rewards of sessions with `num_tokens` sampled tokens, [M], from -penalty to 0.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13): 0 up to limit - buffer, then linear down to -penalty at
    the limit and beyond. `buffer` is in tokens. With limit 20 and buffer 4, 16 tokens give 0 and 18 give -penalty / 2.
    """
    depth = (num_tokens - (limit - buffer)) / buffer
    result: Floats = -penalty * np.clip(depth, 0.0, 1.0)
    return result


def is_overlong(
    num_tokens: NDArray[np.int64], is_truncated: NDArray[np.bool_], *, limit: int
) -> NDArray[np.bool_]:
    """Return which sessions exceed the limit or have an answer that the limit of a turn cut off, [M]."""
    overlong: NDArray[np.bool_] = (num_tokens > limit) | is_truncated
    return overlong
