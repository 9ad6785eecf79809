"""Which policy version sampled which token of an answer: run-length spans.

A span list is flat, `(start, version, start, version, …)`: tokens from `start` up to the next start were sampled by
`version`. Invariants: the first start is 0, starts rise strictly, neighbouring versions differ; an answer without
tokens has no spans. UNKNOWN_VERSION marks tokens whose version cannot be proven; they are never trained.
"""

import numpy as np
from numpy.typing import NDArray

Spans = tuple[int, ...]
UNKNOWN_VERSION = -1


def spans_append(spans: Spans, *, num_tokens: int, version: int, num_added: int) -> Spans:
    """Add `num_added` tokens of `version` after the `num_tokens` that `spans` already describes.

    `spans_append((0, 3), num_tokens=10, version=4, num_added=5)` is `(0, 3, 10, 4)`.
    """
    if num_added == 0 or (spans and spans[-1] == version):
        return spans
    return (*spans, num_tokens, version)


def spans_concat(first: Spans, *, num_first: int, second: Spans) -> Spans:
    """Join the spans of two chunks of one answer; the second begins at token `num_first`."""
    joined = first
    for position in range(0, len(second), 2):
        start, version = num_first + second[position], second[position + 1]
        if not joined or joined[-1] != version:
            joined = (*joined, start, version)
    return joined


def spans_truncate(spans: Spans, num_tokens: int) -> Spans:
    """Return the spans of the first `num_tokens` tokens."""
    kept: list[int] = []
    for position in range(0, len(spans), 2):
        if spans[position] < num_tokens:
            kept += spans[position : position + 2]
    return tuple(kept)


def spans_expand(spans: Spans, num_tokens: int) -> NDArray[np.int32]:
    """Return one version per token, int32 [num_tokens]. Raises ValueError if the spans do not cover the tokens."""
    if num_tokens == 0:
        return np.empty(0, dtype=np.int32)
    if len(spans) == 2 and spans[0] == 0:  # as nearly all are
        return np.full(num_tokens, spans[1], dtype=np.int32)
    starts = np.asarray(spans[0::2], dtype=np.int64)
    versions = np.asarray(spans[1::2], dtype=np.int32)
    if len(starts) == 0 or starts[0] != 0 or starts[-1] >= num_tokens:
        raise ValueError(f"version spans {spans} do not cover {num_tokens} tokens")
    return np.repeat(versions, np.diff(np.append(starts, num_tokens)))


def spans_bounds(spans: Spans) -> tuple[int | None, int | None]:
    """Return the smallest and the largest known version, None if there is none."""
    known = [version for version in spans[1::2] if version != UNKNOWN_VERSION]
    return (min(known), max(known)) if known else (None, None)
