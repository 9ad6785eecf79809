"""An answer that moves between engines is one answer: budget, tokens, spans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason, TokenChunk
from seamlessflow.core.trajectory.version_spans import spans_expand


def piece(tokens: list[int], version: int, reason: FinishReason | None = None) -> TokenChunk:
    ids = np.asarray(tokens, dtype="<i4").tobytes()
    return TokenChunk(
        ids, np.zeros(len(tokens), dtype="<f4").tobytes(), (0, version) if tokens else (), reason
    )


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=5), st.integers(0, 3)), min_size=1, max_size=8)
)
def test_pieces_add_up_whatever_engines_they_came_from(pieces: list[tuple[list[int], int]]) -> None:
    progress = AnswerProgress(prompt_ids=b"\0" * 4, max_tokens=1000)
    for tokens, version in pieces:
        progress.add(piece(tokens, version, FinishReason.ABORT))
        progress.moved()
    said = [token for tokens, _ in pieces for token in tokens]
    assert np.frombuffer(bytes(progress.token_ids), dtype="<i4").tolist() == said
    versions = [version for tokens, version in pieces for _ in tokens]
    assert spans_expand(progress.spans, len(said)).tolist() == versions
    assert progress.min_version == max(versions, default=0)
    assert progress.num_handovers == len(pieces)
    assert progress.next_prompt == b"\0" * 4 + bytes(progress.token_ids)


def test_a_move_costs_the_tokens_that_the_engine_had_in_its_cache() -> None:
    progress = AnswerProgress(prompt_ids=b"\0" * 4 * 10, max_tokens=1000)
    assert progress.moved() == 0, "the turn was still waiting"
    progress.add(piece([1, 2, 3], 0, FinishReason.ABORT))
    assert progress.moved() == 13
    progress.add(piece([], 0, FinishReason.ABORT))
    assert progress.moved() == 0, "the second engine had not begun"


def test_a_used_up_budget_ends_the_answer_even_if_the_engine_was_lost() -> None:
    progress = AnswerProgress(prompt_ids=b"", max_tokens=2)
    progress.add(piece([1, 2], 0))
    assert progress.finish_reason is FinishReason.LENGTH
    with pytest.raises(ValueError, match="finished"):
        progress.add(piece([3], 0))


def test_tokens_after_a_stop_string_are_waste() -> None:
    progress = AnswerProgress(prompt_ids=b"", max_tokens=10)
    progress.add(piece([1, 2], 0))
    progress.add(piece([3, 4], 1))
    progress.cut(2)
    assert (progress.num_tokens, progress.spans, progress.num_wasted_tokens) == (2, (0, 0), 2)
    assert progress.finish_reason is FinishReason.STOP
