"""Parsers of all families: what they find, and that the pieces in which the text arrives never matter."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.parsers.deltas import (
    Delta,
    ParsedOutput,
    ToolCall,
    Tools,
    parse_whole,
)
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get
from tests.fixtures.family_cases import CASES, SUM_JSON, TOOLS, Case

FAMILIES = [family for family in ModelFamily if family is not ModelFamily.AUTO]
CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=60)
WORDS = [
    " ",
    "\n",
    "hello",
    "é漢🙂",
    "{",
    "}",
    "<",
    "function",
    "f",
    "[",
    '{"name": "f", "arguments": {"a": 1}}',
    "calc",
]


def parse(family: ModelFamily, text: str, *, tools: Tools | None = TOOLS, **options: bool) -> ParsedOutput:
    return parse_whole(family_get(family).parser(tools=tools, **options), text)


def parse_in_pieces(
    family: ModelFamily, text: str, cuts: list[int], *, tools: Tools | None = TOOLS
) -> ParsedOutput:
    parser, parsed, at = family_get(family).parser(tools=tools), ParsedOutput(), 0
    for cut in [*cuts, len(text)]:
        for delta in parser.push(text[at : at + cut]):
            parsed.add(delta)
        at += cut
    for delta in parser.finish():
        parsed.add(delta)
    return parsed


def calls_of(parsed: ParsedOutput) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_reasoning_calls_and_content_are_told_apart(case: Case) -> None:
    parsed = parse(case.family, case.text)
    assert (parsed.reasoning, parsed.content) == (case.reasoning, case.content)
    assert calls_of(parsed) == list(case.calls)


@given(st.sampled_from(CASES), CUTS)
def test_deltas_of_any_cut_join_to_the_whole(case: Case, cuts: list[int]) -> None:
    assert parse_in_pieces(case.family, case.text, cuts) == parse(case.family, case.text)


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[ModelFamily, str]:
    """An answer of one family made of its marks, words and whole calls in any order."""
    family = draw(st.sampled_from(FAMILIES))
    whole = [case.text for case in CASES if case.family is family]
    fragments = st.sampled_from([*sorted(family_get(family).marks), *WORDS, *whole])
    return family, "".join(draw(st.lists(fragments, max_size=8)))


@given(mixtures(), CUTS, st.booleans())
def test_parsing_never_depends_on_the_pieces(
    mixture: tuple[ModelFamily, str], cuts: list[int], has_tools: bool
) -> None:
    family, text = mixture
    tools = TOOLS if has_tools else None
    assert parse_in_pieces(family, text, cuts, tools=tools) == parse(family, text, tools=tools)


@given(mixtures())
def test_an_answer_without_a_call_loses_nothing_but_white_space_and_think_marks(
    mixture: tuple[ModelFamily, str],
) -> None:
    family, text = mixture
    parsed = parse(family, text)
    if parsed.tool_calls or family is ModelFamily.GPT_OSS:
        return
    kept = parsed.reasoning + parsed.content
    for mark in ("<think>", "</think>", "[THINK]", "[/THINK]"):
        kept, text = kept.replace(mark, ""), text.replace(mark, "")
    assert "".join(kept.split()) == "".join(text.split())


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_are_content_for_a_request_without_tools(family: ModelFamily) -> None:
    for case in CASES:
        if case.family is family and case.calls:
            parsed = parse(family, case.text, tools=None)
            assert not parsed.tool_calls
            assert "calc" in parsed.content


@pytest.mark.parametrize(
    "family,head,tail",
    [
        (ModelFamily.DEEPSEEK_V31, "<｜tool▁call▁begin｜>calc<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
        (
            ModelFamily.KIMI_K2,
            "<|tool_call_begin|>functions.calc:0<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        (ModelFamily.MISTRAL, "[TOOL_CALLS]calc[ARGS]", ""),
        (ModelFamily.GPT_OSS, "<|channel|>commentary to=functions.calc<|message|>", "<|call|>"),
    ],
)
def test_verbatim_arguments_are_a_call_only_if_they_are_a_whole_json_object(
    family: ModelFamily, head: str, tail: str
) -> None:
    parser = family_get(family).parser(tools=TOOLS)
    assert [delta for c in head + SUM_JSON for delta in parser.push(c)] == []
    (ended,) = parser.push(tail) + parser.finish()
    assert ended.tool_call is not None
    assert (ended.tool_call.name, ended.tool_call.arguments) == ("calc", SUM_JSON)
    for broken in (SUM_JSON[:9], SUM_JSON + "}", "[1]", "3", "oops"):
        parsed = parse(family, "See " + head + broken + tail)
        assert (parsed.content, parsed.tool_calls) == ("See " + head + broken + tail, [])
    cut_short = parse(family, head + SUM_JSON[:9])
    assert (cut_short.content, cut_short.tool_calls) == (head + SUM_JSON[:9], [])


def test_a_broken_call_beside_a_whole_one_is_content() -> None:
    broken, whole = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜>"
    text = whole + broken.format("calc", "{oops") + broken.format("now", "{}") + "<｜tool▁calls▁end｜>"
    parsed = parse(ModelFamily.DEEPSEEK_V31, text)
    assert calls_of(parsed) == [("now", {})]
    assert parsed.content == whole + broken.format("calc", "{oops")
    harmony = "<|channel|>commentary to=functions.{}<|message|>{}<|call|>"
    parsed = parse(ModelFamily.GPT_OSS, harmony.format("calc", "{oops") + harmony.format("now", "{}"))
    assert (parsed.content, calls_of(parsed)) == (harmony.format("calc", "{oops"), [("now", {})])


def test_the_identifiers_that_a_model_writes_are_kept() -> None:
    kimi = "<|tool_call_begin|>functions.calc:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert parse(ModelFamily.KIMI_K2, kimi).tool_calls == [ToolCall("calc", "{}", "functions.calc:3")]
    mistral = "[TOOL_CALLS]calc[CALL_ID]abcdefghi[ARGS]{}"
    assert parse(ModelFamily.MISTRAL, mistral).tool_calls == [ToolCall("calc", "{}", "abcdefghi")]
    ids = family_get(ModelFamily.MISTRAL).call_ids
    assert len(ids.call_id(ids.new_stem(), 3)) == 9


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    parsed = parse(ModelFamily.GPT_OSS, "<|channel|>commentary to=functions.now<|message|><|call|>")
    assert parsed.tool_calls == [ToolCall("now", "{}")]


def test_a_prompt_that_opened_the_reasoning_is_continued() -> None:
    parsed = parse(ModelFamily.HERMES, "hm</think>\nYes.", starts_in_reasoning=True)
    assert (parsed.reasoning, parsed.content) == ("hm", "Yes.")


def test_deltas_carry_one_thing_each() -> None:
    for case in CASES:
        parser = family_get(case.family).parser(tools=TOOLS)
        for delta in parser.push(case.text) + parser.finish():
            assert delta != Delta()
            assert sum(map(bool, (delta.content, delta.reasoning, delta.tool_call))) == 1
