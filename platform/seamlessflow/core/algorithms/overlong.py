"""What becomes of sessions that sampled too much: DAPO's soft penalty, and who counts as overlong."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def soft_penalties(num_tokens: NDArray[np.int64], *, limit: int, buffer: float, penalty: float) -> Floats:
    """What is added to the rewards of sessions of so many sampled tokens, [M], from -penalty to 0.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13): 0 up to limit - buffer, then down in a line to -penalty
    at the limit and beyond. `buffer` is in tokens. Limit 20, buffer 4: 16 tokens give 0, 18 give -penalty / 2.
    """
    depth = (num_tokens - (limit - buffer)) / buffer
    result: Floats = -penalty * np.clip(depth, 0.0, 1.0)
    return result


def is_overlong(
    num_tokens: NDArray[np.int64], is_truncated: NDArray[np.bool_], *, limit: int
) -> NDArray[np.bool_]:
    """Sessions past the limit, or with an answer that the limit of a turn cut, [M]."""
    overlong: NDArray[np.bool_] = (num_tokens > limit) | is_truncated
    return overlong
