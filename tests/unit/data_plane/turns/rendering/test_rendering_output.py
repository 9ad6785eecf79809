"""Tokens to text: the result does not depend on how the text is cut into pieces."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from seamlessflow.data_plane.dialects.likeliest import shown_tokens
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText, Detokenizer
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.token_bytes import _byte_level
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


class Counting:
    """A model's text that counts the tokens it decodes."""

    def __init__(self, text: ModelText) -> None:
        self.text, self.hidden_ids, self.num_decoded = text, text.hidden_ids, 0

    def decode(self, token_ids: list[int]) -> str:
        self.num_decoded += len(token_ids)
        return self.text.decode(token_ids)


@pytest.mark.parametrize("byte", [0xE2, 0xF0, 0x80, 0xFF])
def test_bytes_without_a_character_are_shown_at_once_and_cost_linear_time(text: ModelText, byte: int) -> None:
    spelled = {value: char for char, value in _byte_level().items()}
    lone = text.tokenizer.token_to_id(spelled[byte])
    assert lone is not None
    ids = [lone] * 1000 + text.tokenizer.encode("é🙂 end", add_special_tokens=False).ids
    counting = Counting(text)
    detokenizer, shown = Detokenizer(cast(ModelText, counting)), ""
    for number, token in enumerate(ids[:1000]):
        shown += detokenizer.push([token])
        assert number + 1 - len(shown) <= 4
    shown += "".join(detokenizer.push([token]) for token in ids[1000:]) + detokenizer.flush()
    assert shown == text.decode(ids)
    assert counting.num_decoded < 60 * len(ids)


def test_the_bytes_of_tokens_join_to_the_text(text: ModelText) -> None:
    said = "é🫨 漢 plain"
    ids = text.tokenizer.encode(said, add_special_tokens=False).ids
    found = shown_tokens(text.tokenizer, ids, [0.0] * len(ids))
    assert b"".join(piece.raw for piece in found) == said.encode()


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    ],
)
def test_a_space_before_a_word_is_one_of_its_bytes(decoder: decoders.Decoder) -> None:
    """SentencePiece's words bring their space along, but as the beginning of a text they lose it."""
    words = ["a", "▁is", "▁", "▁▁", "is", "▁is"]
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "a"))
    tokenizer.decoder = decoder
    ids = [vocabulary[word] for word in words]
    found = shown_tokens(tokenizer, ids, [0.0] * len(ids))
    assert b"".join(piece.raw for piece in found).decode() == tokenizer.decode(ids) == "a is   is is"


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"tokenizer\.json"):
        model_text_load(str(tmp_path))
