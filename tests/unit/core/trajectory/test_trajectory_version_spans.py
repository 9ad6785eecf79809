"""Version spans: every token keeps the version that sampled it, however the answer is cut into pieces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.version_spans import (
    Spans,
    spans_append,
    spans_bounds,
    spans_concat,
    spans_expand,
    spans_truncate,
)

VERSIONS = st.lists(st.integers(-1, 3), max_size=30)


def spans_of(versions: list[int]) -> Spans:
    spans: Spans = ()
    for index, version in enumerate(versions):
        spans = spans_append(spans, num_tokens=index, version=version, num_added=1)
    return spans


@given(VERSIONS)
def test_expanding_returns_the_version_of_each_token(versions: list[int]) -> None:
    assert spans_expand(spans_of(versions), len(versions)).tolist() == versions


@given(VERSIONS, VERSIONS)
def test_joining_pieces_joins_their_tokens(first: list[int], second: list[int]) -> None:
    joined = spans_concat(spans_of(first), num_first=len(first), second=spans_of(second))
    assert joined == spans_of(first + second)


@given(VERSIONS, st.integers(0, 30))
def test_truncating_keeps_the_first_tokens(versions: list[int], num_tokens: int) -> None:
    assert spans_truncate(spans_of(versions), num_tokens) == spans_of(versions[:num_tokens])


def test_bounds_ignore_unknown_versions() -> None:
    assert spans_bounds((0, -1, 3, 5, 4, 2)) == (2, 5)
    assert spans_bounds((0, -1)) == (None, None)


def test_spans_that_do_not_begin_at_the_first_token_are_refused() -> None:
    with pytest.raises(ValueError, match="do not cover"):
        spans_expand((2, 1), 5)
    assert spans_expand((), 0).dtype == np.int32
