"""Tokens to text: the result does not depend on how the text is cut into pieces."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText, Detokenizer
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from tests.fixtures.tiny_text import write_tiny_text

CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return model_text_load(write_tiny_text(tmp_path_factory.mktemp("text")))


@given(st.text(max_size=40), CUTS)
def test_detokenising_never_cuts_a_character(text: ModelText, said: str, cuts: list[int]) -> None:
    ids = text.tokenizer.encode(said, add_special_tokens=False).ids
    detokenizer, shown, at = Detokenizer(text), "", 0
    for cut in [*cuts, len(ids)]:
        piece = detokenizer.push(ids[at : at + cut])
        assert "\ufffd" not in piece or "\ufffd" in said
        shown += piece
        at += cut
    assert shown + detokenizer.push(ids[at:]) + detokenizer.flush() == text.decode(ids)


@given(CUTS)
def test_a_stop_string_is_found_across_pieces_and_keeps_its_token(text: ModelText, cuts: list[int]) -> None:
    ids = text.tokenizer.encode("one two STOP three four", add_special_tokens=False).ids
    answer, at = AnswerText(text, stop=["STOP", "never"], tools=None, starts_in_reasoning=False), 0
    for cut in [*cuts, len(ids)]:
        answer.push(np.asarray(ids[at : at + cut], dtype="<i4").tobytes())
        at += cut
    answer.push(np.asarray(ids[at:], dtype="<i4").tobytes())
    answer.finish()
    assert answer.parsed.content == "one two "
    assert answer.num_kept_tokens is not None
    kept = text.decode(ids[: answer.num_kept_tokens])
    assert "STOP" in kept
    assert "STOP" not in text.decode(ids[: answer.num_kept_tokens - 1])


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"tokenizer\.json"):
        model_text_load(str(tmp_path))
