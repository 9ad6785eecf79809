"""Calls as the families write them, with marks in their arguments: all comes back, and none is invented."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ParsedOutput, Tools, parse_whole
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get

Call = tuple[str, dict[str, str]]
STRINGS = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
TOOLS: Tools = [
    {"type": "function", "function": {"name": name, "parameters": STRINGS}} for name in ("edit", "look")
]


def _json(call: Call, field: str = "arguments") -> str:
    return json.dumps({"name": call[0], field: call[1]}, ensure_ascii=False)


def _hermes(calls: list[Call]) -> str:
    return "\n".join(f"<tool_call>\n{_json(call)}\n</tool_call>" for call in calls)


def _qwen(calls: list[Call]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        + "</function>\n</tool_call>"
        for name, arguments in calls
    )


def _glm(calls: list[Call]) -> str:
    return "\n".join(
        f"<tool_call>{name}\n"
        + "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items()
        )
        + "</tool_call>"
        for name, arguments in calls
    )


def _deepseek(head: str, tail: str) -> Callable[[list[Call]], str]:
    def written(calls: list[Call]) -> str:
        parts = [head.format(name) + json.dumps(arguments) + tail for name, arguments in calls]
        return "<｜tool▁calls▁begin｜>" + "".join(parts) + "<｜tool▁calls▁end｜>"

    return written


def _kimi(calls: list[Call]) -> str:
    head = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>"
    parts = [
        head.format(name, number) + json.dumps(arguments) + "<|tool_call_end|>"
        for number, (name, arguments) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(parts) + "<|tool_calls_section_end|>"


def _mistral_array(calls: list[Call]) -> str:
    return "[TOOL_CALLS][" + ", ".join(map(_json, calls)) + "]"


def _harmony(calls: list[Call]) -> str:
    head = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
    return "<|start|>assistant".join(
        head.format(name) + json.dumps(arguments) + "<|call|>" for name, arguments in calls
    )


FORMS: list[tuple[ModelFamily, Callable[[list[Call]], str]]] = [
    (ModelFamily.HERMES, _hermes),
    (ModelFamily.QWEN3_CODER, _qwen),
    (ModelFamily.GLM, _glm),
    (ModelFamily.LLAMA3, lambda calls: "; ".join(_json(call, "parameters") for call in calls)),
    (
        ModelFamily.DEEPSEEK_V3,
        _deepseek("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n", "\n```<｜tool▁call▁end｜>"),
    ),
    (ModelFamily.DEEPSEEK_V31, _deepseek("<｜tool▁call▁begin｜>{}<｜tool▁sep｜>", "<｜tool▁call▁end｜>")),
    (ModelFamily.KIMI_K2, _kimi),
    (ModelFamily.MISTRAL, _mistral_array),
    (
        ModelFamily.MISTRAL,
        lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given)}" for name, given in calls),
    ),
    (ModelFamily.GPT_OSS, _harmony),
]
TEXT_FIRST = [
    form for form in FORMS if form[0] not in (ModelFamily.LLAMA3, ModelFamily.MISTRAL, ModelFamily.GPT_OSS)
]
OTHER_MARKS = [
    "</function>",
    "</parameter>",
    "<parameter=c>",
    "<function=look>",
    "```",
    "<think>",
    "</think>",
]


def parse(family: ModelFamily, text: str, cuts: list[int] | None = None) -> ParsedOutput:
    parser, parsed, at = family_get(family).parser(tools=TOOLS), ParsedOutput(), 0
    for cut in [*(cuts or []), len(text)]:
        for delta in parser.push(text[at : at + cut]):
            parsed.add(delta)
        at += cut
    for delta in parser.finish():
        parsed.add(delta)
    return parsed


def calls_of(parsed: ParsedOutput) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls]


def _values(family: ModelFamily) -> st.SearchStrategy[str]:
    """Return texts with marks inside of them, each within its line."""
    marks = st.sampled_from([*sorted(family_get(family).marks), *OTHER_MARKS])
    words = st.sampled_from(["x", "é🙂", " ", "\n", '"', "\\", "{", "}", "x;", "]"])
    return st.lists(st.one_of(words, marks.map(lambda mark: f"an {mark} in it")), max_size=5).map("".join)


def _is_clear(family: ModelFamily, value: str) -> bool:
    """Return whether values that nobody can tell from tags are left out: those of GLM's own, which stand unescaped."""
    return family is not ModelFamily.GLM or "arg_" not in value


@st.composite
def answers(draw: st.DrawFn) -> tuple[ModelFamily, str, list[Call]]:
    family, written = draw(st.sampled_from(FORMS))
    value = _values(family).filter(lambda text: _is_clear(family, text))
    arguments = st.dictionaries(st.sampled_from(["a", "b"]), value, max_size=2)
    calls = draw(st.lists(st.tuples(st.sampled_from(["edit", "look"]), arguments), min_size=1, max_size=3))
    return family, written(calls), calls


@settings(max_examples=400)
@given(answers(), st.lists(st.integers(1, 12), max_size=40))
def test_calls_come_back_with_all_marks_in_their_arguments(
    answer: tuple[ModelFamily, str, list[Call]], cuts: list[int]
) -> None:
    family, text, calls = answer
    parsed = parse(family, text)
    assert calls_of(parsed) == [(name, given) for name, given in calls]
    assert parsed.content.strip() == ""
    assert parse(family, text, cuts) == parsed


@pytest.mark.parametrize("family,written", FORMS, ids=lambda one: str(getattr(one, "value", "")))
def test_each_mark_in_an_argument_comes_back_for_every_cut(
    family: ModelFamily, written: Callable[[list[Call]], str]
) -> None:
    for mark in [*sorted(family_get(family).marks), *OTHER_MARKS]:
        if not _is_clear(family, mark):
            continue
        calls: list[Call] = [("edit", {"a": f"ends with {mark} here", "b": "y"}), ("look", {})]
        text = written(calls)
        whole = parse(family, text)
        assert calls_of(whole) == calls, mark
        for cut in range(1, len(text)):
            assert parse(family, text, [cut]) == whole


@pytest.mark.parametrize("family,written", TEXT_FIRST, ids=lambda one: str(getattr(one, "value", "")))
def test_texts_around_a_call_do_not_melt(family: ModelFamily, written: Callable[[list[Call]], str]) -> None:
    call = written([("look", {"a": "1"})])
    for before, after in (("a\n", "\nthen"), ("a", "\n\nthen"), ("a \n", "then")):
        parsed = parse(family, before + call + after)
        assert parsed.content.split() == ["a", "then"]
        assert calls_of(parsed) == [("look", {"a": "1"})]
        for cut in range(1, len(before + call + after)):
            assert parse(family, before + call + after, [cut]) == parsed


@settings(max_examples=300)
@given(answers(), st.integers(0, 400), st.integers(1, 30), st.lists(st.integers(1, 12), max_size=40))
def test_damaged_calls_lose_no_text_and_never_depend_on_the_pieces(
    answer: tuple[ModelFamily, str, list[Call]], begin: int, length: int, cuts: list[int]
) -> None:
    family, text, _ = answer
    damaged = text[:begin] + text[begin + length :]
    parsed = parse(family, damaged)
    assert parse(family, damaged, cuts) == parsed
    if not parsed.tool_calls and not parsed.reasoning and family is not ModelFamily.GPT_OSS:
        without = damaged.replace("<think>", "").replace("</think>", "")
        shown = parsed.content.replace("<think>", "").replace("</think>", "")
        assert "".join(shown.split()) == "".join(without.split())


LOOSE = [
    ("<function=edit>\n<parameter=a>\nx\n<parameter=b>\ny\n</parameter>\n</function>", {"a": "x", "b": "y"}),
    ("<function=edit><parameter=a>x<parameter=b>y</parameter></function>", {"a": "x", "b": "y"}),
    ("<function=edit>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\ny\n</function>", {"a": "x", "b": "y"}),
    ("<function=edit>\n<parameter=a>\nx\n</function>", {"a": "x"}),
    ("<function=edit>\n<parameter=a>\nx\n</parameter>\n", {"a": "x"}),
    ("<function=edit>\n", {}),
    ("<function=\"edit\">\n<parameter='a'>\nx\n</parameter>\n</function>", {"a": "x"}),
]


@pytest.mark.parametrize("inside,arguments", LOOSE)
def test_a_missing_closing_tag_of_a_parameter_never_merges_two_values(
    inside: str, arguments: dict[str, str]
) -> None:
    next_call = _qwen([("look", {"a": "1"})])
    for behind, others in (("", []), (f"\n{next_call}", [("look", {"a": "1"})]), ("\nDone.", [])):
        text = f"<tool_call>\n{inside}\n</tool_call>{behind}"
        parsed = parse(ModelFamily.QWEN3_CODER, text)
        assert calls_of(parsed) == [("edit", arguments), *others]
        for cut in range(1, len(text)):
            assert parse(ModelFamily.QWEN3_CODER, text, [cut]) == parsed


def test_a_missing_closing_tag_of_glm_never_merges_two_values() -> None:
    text = (
        "<tool_call>edit\n<arg_key>a</arg_key>\n<arg_value>x\n"
        "<arg_key>b</arg_key>\n<arg_value>y</arg_value>\n</tool_call>"
    )
    assert calls_of(parse(ModelFamily.GLM, text)) == [("edit", {"a": "x", "b": "y"})]


@pytest.mark.parametrize("head", ["", "Let me look.\n", "<think>hm</think>\n"])
def test_an_offered_tool_may_be_called_without_the_opening_mark(head: str) -> None:
    whole = f"{head}<function=look>\n<parameter=a>\n1\n</parameter>\n</function>"
    for text in (whole, f"{whole}\n</tool_call>"):
        parsed = parse(ModelFamily.QWEN3_CODER, text)
        assert calls_of(parsed) == [("look", {"a": "1"})]
        assert parsed.content == ("Let me look." if "Let" in head else "")
        for cut in range(1, len(text)):
            assert parse(ModelFamily.QWEN3_CODER, text, [cut]) == parsed


def test_text_that_names_a_function_stays_text() -> None:
    call = _qwen([("edit", {"a": "1"})])
    for text in ("Write <function=look> and so on.", "<function=other>\n</function>\n</tool_call>"):
        parsed = parse(ModelFamily.QWEN3_CODER, f"{text}\n{call}")
        assert (parsed.content, calls_of(parsed)) == (text, [("edit", {"a": "1"})])


BREAKS = {"a": "x\n\ty </tool_call> z"}  # of lines, which models write into JSON as they are


@pytest.mark.parametrize(
    "family, text",
    [
        (ModelFamily.HERMES, '<tool_call>{"name": "edit", "arguments": %s}</tool_call>'),
        (ModelFamily.LLAMA3, '{"name": "edit", "parameters": %s}'),
        (ModelFamily.MISTRAL, "[TOOL_CALLS]edit[ARGS]%s"),
        (ModelFamily.MISTRAL, '[TOOL_CALLS][{"name": "edit", "arguments": %s}]'),
        (ModelFamily.DEEPSEEK_V31, "<｜tool▁call▁begin｜>edit<｜tool▁sep｜>%s<｜tool▁call▁end｜>"),
        (
            ModelFamily.KIMI_K2,
            "<|tool_call_begin|>functions.edit:0<|tool_call_argument_begin|>%s<|tool_call_end|>",
        ),
        (ModelFamily.GPT_OSS, "<|channel|>commentary to=functions.edit<|message|>%s<|call|>"),
    ],
)
def test_line_breaks_in_json_end_no_call(family: ModelFamily, text: str) -> None:
    text %= json.dumps(BREAKS).replace("\\n", "\n").replace("\\t", "\t")
    parsed = parse(family, text)
    assert (parsed.content, calls_of(parsed)) == ("", [("edit", BREAKS)])
    for cut in range(1, len(text)):
        assert parse(family, text, [cut]) == parsed


@pytest.mark.parametrize("family", [ModelFamily.HERMES, ModelFamily.QWEN3_CODER, ModelFamily.GLM])
@pytest.mark.parametrize(
    "inside, num_calls",
    [
        ('{"name":"look","arguments":{"a":"1"}}', 1),
        ('[{"name":"look","arguments":{"a":"1"}},{"name":"look","arguments":{"a":"1"}}]', 2),
        ('\n{"name":"look","arguments":{"a":"1"}}\n{"name":"look","arguments":{"a":"1"}}\n', 2),
    ],
)
def test_json_between_the_marks_of_a_call_is_one_or_several(
    family: ModelFamily, inside: str, num_calls: int
) -> None:
    parsed = parse(family, f"<tool_call>{inside}</tool_call>")
    assert (parsed.content, calls_of(parsed)) == ("", [("look", {"a": "1"})] * num_calls)


@pytest.mark.parametrize("value", ['"\\ud83d"', "NaN", "-Infinity"])
@pytest.mark.parametrize(
    "family, text",
    [
        (ModelFamily.LLAMA3, '{"name": "look", "parameters": {"a": %s}}'),
        (ModelFamily.HERMES, '<tool_call>{"name": "look", "arguments": {"a": %s}}</tool_call>'),
        (ModelFamily.MISTRAL, '[TOOL_CALLS]look[ARGS]{"a": %s}'),
    ],
)
def test_what_no_json_text_holds_stays_text(family: ModelFamily, text: str, value: str) -> None:
    try:
        shown: object = parse(family, text % value).content
    except UnicodeEncodeError as error:
        shown = error
    assert shown == text % value


@pytest.mark.parametrize("more", ['"note": "keep"', '"description": "Looks."', '"age": 36'])
def test_llama_answers_with_more_than_a_call_are_no_call(more: str) -> None:
    text = f'{{"name": "look", "parameters": {{"a": "1"}}, {more}}}'
    assert (parse(ModelFamily.LLAMA3, text).content, parse(ModelFamily.LLAMA3, text).tool_calls) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '{"name": "Ada"}',
        '{"name": "look", "age": 36}',
        '{"name": "look", "parameters": 3}',
    ],
)
def test_json_that_only_has_a_name_is_no_call(text: str) -> None:
    for family, shown in ((ModelFamily.LLAMA3, text), (ModelFamily.HERMES, f"<tool_call>{text}</tool_call>")):
        parsed = parse(family, shown)
        assert (parsed.content, parsed.tool_calls) == (shown, [])


@pytest.mark.parametrize(
    "family,text",
    [
        (ModelFamily.LLAMA3, '{"name": "look", "parameters": null}'),
        (ModelFamily.LLAMA3, '{"name": "look"}'),
        (ModelFamily.HERMES, '<tool_call>{"name": "look", "arguments": null}</tool_call>'),
        (ModelFamily.HERMES, '<tool_call>{"name": "look", "arguments": []}</tool_call>'),
        (ModelFamily.MISTRAL, '[TOOL_CALLS][{"name": "look", "arguments": null}]'),
        (ModelFamily.MISTRAL, "[TOOL_CALLS]look[ARGS]null"),
        (ModelFamily.DEEPSEEK_V31, "<｜tool▁call▁begin｜>look<｜tool▁sep｜>null<｜tool▁call▁end｜>"),
        (ModelFamily.GPT_OSS, "<|channel|>commentary to=functions.look<|message|>null<|call|>"),
    ],
)
def test_arguments_that_are_null_or_missing_arrive_as_an_empty_object(family: ModelFamily, text: str) -> None:
    (call,) = parse_whole(family_get(family).parser(tools=TOOLS), text).tool_calls
    assert (call.name, call.arguments) == ("look", "{}")


@pytest.mark.parametrize("written,value", [("3.0", 3), ("230.0", 230), ("3.5", "3.5"), ("1e400", "1e400")])
def test_an_integer_may_be_written_with_a_point(written: str, value: object) -> None:
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "count", "parameters": parameters}}]
    text = f"<tool_call>count\n<arg_key>n</arg_key>\n<arg_value>{written}</arg_value>\n</tool_call>"
    (call,) = parse_whole(family_get(ModelFamily.GLM).parser(tools=tools), text).tool_calls
    assert json.loads(call.arguments) == {"n": value}
    assert type(json.loads(call.arguments)["n"]) is type(value)


UNCLOSED = [
    (ModelFamily.HERMES, '<tool_call>\n{"name": "look", "arguments": {"a": "1"}}\n'),
    (ModelFamily.QWEN3_CODER, "<tool_call>\n<function=look>\n<parameter=a>\n1\n</parameter>\n</function>"),
    (
        ModelFamily.DEEPSEEK_V3,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{"a": "1"}\n```',
    ),
    (
        ModelFamily.DEEPSEEK_V31,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{"a": "1"}',
    ),
    (ModelFamily.KIMI_K2, '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"a": "1"}'),
]


@pytest.mark.parametrize("family,call", UNCLOSED, ids=lambda one: str(getattr(one, "value", "")))
def test_a_call_that_is_whole_needs_no_closing_mark(family: ModelFamily, call: str) -> None:
    series_ends = {
        ModelFamily.DEEPSEEK_V3: "<｜tool▁calls▁end｜>",
        ModelFamily.DEEPSEEK_V31: "<｜tool▁calls▁end｜>",
        ModelFamily.KIMI_K2: "<|tool_calls_section_end|>",
    }
    for text in {call, call + series_ends.get(family, "")}:
        parsed = parse(family, text)
        assert (parsed.content, calls_of(parsed)) == ("", [("look", {"a": "1"})])
        for cut in range(1, len(text)):
            assert parse(family, text, [cut]) == parsed
        for length in range(len(text) - len(series_ends.get(family, "")) - 20):
            assert not parse(family, call[:length]).tool_calls


@pytest.mark.parametrize(
    "family,call",
    [
        (ModelFamily.MISTRAL, '[TOOL_CALLS]look{"a": "1"}'),
        (ModelFamily.MISTRAL, '[TOOL_CALLS]look[ARGS]{"a": "1"}'),
        (ModelFamily.LLAMA3, '<|python_tag|>{"name": "look", "parameters": {"a": "1"}}'),
    ],
)
def test_text_behind_a_call_without_closing_mark_stays_text(family: ModelFamily, call: str) -> None:
    text = f"Hm {call}\nDone."
    parsed = parse(family, text)
    assert calls_of(parsed) == [("look", {"a": "1"})]
    assert parsed.content.split() == ["Hm", "Done."]
    for cut in range(1, len(text)):
        assert parse(family, text, [cut]) == parsed


def test_calls_within_a_value_that_lacks_no_tag_stay_in_it() -> None:
    inside = _qwen([("look", {"a": "1"}), ("edit", {"b": "2"})])
    calls: list[Call] = [("edit", {"a": inside, "b": "y"}), ("look", {})]
    assert calls_of(parse(ModelFamily.QWEN3_CODER, _qwen(calls))) == calls


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "look", "parameters": {"a": "1"}}\n{"name": "look", "parameters": {"a": "1"}}',
        (
            '{"type": "function", "function": {"name": "look", "parameters": {"a": "1"}}};'
            '{"name": "look", "parameters": {"a": "1"}}'
        ),
    ],
)
def test_llama_may_write_calls_on_lines_of_their_own_or_as_clients_get_them(text: str) -> None:
    assert calls_of(parse(ModelFamily.LLAMA3, text)) == [("look", {"a": "1"})] * 2


def test_kimi_writes_the_marks_of_a_section_in_two_ways() -> None:
    call = '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"a": "1"}<|tool_call_end|>'
    for name in ("tool_call_section", "tool_calls_section"):
        parsed = parse(ModelFamily.KIMI_K2, f"Hm.<|{name}_begin|>{call}<|{name}_end|>")
        assert (parsed.content, calls_of(parsed)) == ("Hm.", [("look", {"a": "1"})])
