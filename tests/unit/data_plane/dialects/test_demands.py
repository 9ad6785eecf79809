"""Forced calls, schemas of content and strict tools: read alike from every dialect, and refused by field."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from seamlessflow.core.guidance.answer_grammar import CallableTool, ToolDemand
from seamlessflow.data_plane.dialects.chat.request import chat_request_parse
from seamlessflow.data_plane.dialects.messages.request import messages_request_parse
from seamlessflow.data_plane.dialects.responses.request import response_request_parse
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import ApiError

USER = {"role": "user", "content": "?"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD, NOW = CallableTool("add", SCHEMA), CallableTool("now", {})
PLAIN: list[dict[str, Any]] = [{"name": "add", "parameters": SCHEMA}, {"name": "now"}]
Parse = Callable[..., TurnRequest[Any]]


def chat(**fields: Any) -> TurnRequest[Any]:
    tools = [{"type": "function", "function": tool} for tool in fields.pop("tools", [])]
    return chat_request_parse(
        json.dumps({"messages": [USER], "tools": tools, **fields}).encode(), temperature=1.0
    )


def responses(**fields: Any) -> TurnRequest[Any]:
    tools = [{"type": "function", **tool} for tool in fields.pop("tools", [])]
    return response_request_parse(
        json.dumps({"input": "?", "tools": tools, **fields}).encode(), temperature=1.0
    )


def messages(**fields: Any) -> TurnRequest[Any]:
    tools = [_anthropic(tool) for tool in fields.pop("tools", [])]
    body = {"messages": [USER], "max_tokens": 9, "tools": tools, **fields}
    return messages_request_parse(json.dumps(body).encode(), temperature=1.0)


def _anthropic(tool: dict[str, Any]) -> dict[str, Any]:
    names = {"parameters": "input_schema"}
    return {names.get(name, name): value for name, value in tool.items()}


@pytest.mark.parametrize(
    "parse,any_tool,one_tool",
    [
        (chat, "required", {"type": "function", "function": {"name": "now"}}),
        (responses, "required", {"type": "function", "name": "now"}),
        (messages, {"type": "any"}, {"type": "tool", "name": "now"}),
    ],
)
def test_calls_are_forced_in_every_dialect(parse: Parse, any_tool: object, one_tool: object) -> None:
    assert parse(tools=PLAIN, tool_choice=any_tool).demand == ToolDemand("tool_choice", tools=[ADD, NOW])
    named = ToolDemand("tool_choice", tools=[NOW], is_parallel=False)
    assert parse(tools=PLAIN, tool_choice=one_tool).demand == named
    for choice in (any_tool, one_tool):
        with pytest.raises(ApiError) as refused:
            parse(tool_choice=choice)
        assert (refused.value.status, refused.value.param) == (400, "tool_choice")


def test_single_calls_are_demanded_where_calls_are_guided() -> None:
    one = chat(tools=PLAIN, tool_choice="required", parallel_tool_calls=False)
    assert (one.demand, one.ignored) == (ToolDemand("tool_choice", tools=[ADD, NOW], is_parallel=False), ())
    free = chat(tools=PLAIN, parallel_tool_calls=False)
    assert (free.demand, free.has_one_call, free.ignored) == (None, True, ())


@pytest.mark.parametrize(
    "parse,fields,field",
    [
        (
            chat,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            "response_format.json_schema.schema",
        ),
        (responses, {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "text.format.schema"),
        (
            messages,
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "output_config.format.schema",
        ),
    ],
)
def test_content_of_a_schema_is_demanded_in_every_dialect(
    parse: Parse, fields: dict[str, Any], field: str
) -> None:
    assert parse(**fields).demand == ToolDemand(field, schema=SCHEMA)
    either = ToolDemand(field, schema=SCHEMA, tools=[CallableTool("add", {}), NOW], may_answer=True)
    assert parse(tools=PLAIN, **fields).demand == either


def test_any_object_is_a_schema_too() -> None:
    found = chat(response_format={"type": "json_object"}).demand
    assert found == ToolDemand("response_format", schema={"type": "object"})
    assert chat(response_format={"type": "text"}).demand is None


@pytest.mark.parametrize("parse", [chat, responses, messages])
def test_strict_tools_are_demanded_softly(parse: Parse) -> None:
    tools = [PLAIN[0] | {"strict": True}, PLAIN[1] | {"parameters": SCHEMA}]
    expected = ToolDemand("tools.strict", tools=[ADD, CallableTool("now", {})], may_answer=True)
    assert parse(tools=tools).demand == expected
    assert parse(tools=PLAIN).demand is None


def test_a_form_of_content_is_no_hindrance_to_a_forced_call() -> None:
    """Frameworks send both with every request of a run; an answer of calls has no content."""
    asked: dict[str, Any] = {"tool_choice": "required", "tools": PLAIN}
    assert chat(**asked, response_format={"type": "json_object"}).demand == chat(**asked).demand


@pytest.mark.parametrize("parse,choice", [(chat, "none"), (responses, "none"), (messages, {"type": "none"})])
def test_no_call_is_demanded_of_a_request_that_forbids_calls(parse: Parse, choice: object) -> None:
    assert parse(tools=[PLAIN[0] | {"strict": True}], tool_choice=choice).demand is None


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"tool_choice": "required", "tools": [{"description": "?"}]}, "tools[0]"),
        ({"tool_choice": {"type": "function"}, "tools": PLAIN}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": PLAIN}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 7}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_cannot_be_demanded_is_refused_by_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("half", ["a\\ud800b", "\\udfff"])
def test_half_of_a_surrogate_pair_is_named_with_its_field(half: str) -> None:
    raw = b'{"model": "m", "messages": [{"role": "user", "content": "' + half.encode() + b'"}]}'
    with pytest.raises(ApiError, match=r"messages\[0\]\.content contains half of a surrogate pair"):
        chat_request_parse(raw, temperature=1.0)
