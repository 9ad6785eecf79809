"""Tokens to text to deltas: the result does not depend on how the text is cut into pieces."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText, Detokenizer
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, ModelUnusable, model_text_load
from seamlessflow.data_plane.turns.rendering.output_parser import OutputParser, ParsedOutput, parse_output
from tests.fixtures.tiny_text import write_tiny_text

FRAGMENTS = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool", "call>", " ", "\n", "hello",
        '{"name": "f", "arguments": {"a": 1}}', '{"name": 3}', "é漢🙂",
    ]
)  # fmt: skip
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return model_text_load(write_tiny_text(tmp_path_factory.mktemp("text")))


@given(st.lists(FRAGMENTS, max_size=10), CUTS, st.booleans())
def test_parsing_does_not_depend_on_the_pieces(
    fragments: list[str], cuts: list[int], has_tools: bool
) -> None:
    whole = "".join(fragments)
    parser, parsed, at = OutputParser(has_tools=has_tools), ParsedOutput(), 0
    for cut in [*cuts, len(whole)]:
        for delta in parser.push(whole[at : at + cut]):
            parsed.add(delta)
        at += cut
    for delta in parser.push(whole[at:]) + parser.finish():
        parsed.add(delta)
    assert parsed == parse_output(whole, has_tools=has_tools)


def test_reasoning_calls_and_content_are_told_apart() -> None:
    parsed = parse_output(
        '<think>hm</think>\nSee:\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', has_tools=True
    )
    assert (parsed.reasoning, parsed.content) == ("hm", "See:")
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("f", '{"a":1}')]


def test_a_broken_call_and_a_call_without_tools_stay_content() -> None:
    broken = "<tool_call>{oops}</tool_call>"
    assert parse_output(broken, has_tools=True).content == broken
    call = '<tool_call>{"name": "f"}</tool_call>'
    assert parse_output(call, has_tools=False).content == call


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
    answer, at = AnswerText(text, stop=["STOP", "never"], has_tools=False, starts_in_reasoning=False), 0
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
