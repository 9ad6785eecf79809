"""Bodies of OpenAI's Responses: what they become, which fields are ignored by name, and which values are refused."""

import json
from typing import Any

import pytest

from seamlessflow.data_plane.dialects.reasoning_seal import reasoning_seal
from seamlessflow.data_plane.dialects.responses.request import ResponseRequest, response_request_parse
from seamlessflow.data_plane.dialects.responses.tools import function_name
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

USER: dict[str, Any] = {"role": "user", "content": "?"}
PATCH: dict[str, Any] = {"type": "custom", "name": "patch", "description": "edits"}
GRAMMAR: dict[str, Any] = {"type": "grammar", "syntax": "lark", "definition": "start: /./"}
SHELL: dict[str, Any] = {
    "type": "namespace",
    "name": "shell",
    "description": "Commands.",
    "tools": [{"type": "function", "name": "run", "parameters": {}}, PATCH],
}


def parsed(**fields: Any) -> ResponseRequest:
    return response_request_parse(json.dumps({"input": "?", **fields}).encode(), temperature=1.0)


def conversation_of(request: ResponseRequest) -> Conversation:
    assert isinstance(request.conversation, Conversation)
    return request.conversation


def messages(*items: Any, **fields: Any) -> list[Any]:
    return list(conversation_of(parsed(input=list(items), **fields)).messages)


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_string_is_a_message_of_the_user() -> None:
    assert list(conversation_of(parsed()).messages) == [USER]


def test_items_of_one_answer_are_one_message() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": reasoning_seal("hm")}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me"}]}
    more = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": " see."}]}
    function = {"type": "function_call", "call_id": "call_1", "name": "calc", "arguments": '{"a":1}'}
    custom = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "+a"}
    output = {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "46"}],
    }

    assert messages(USER, thought, said, more, function, custom, output) == [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [call("calc", '{"a":1}'), call("patch", '{"input":"+a"}')],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "46"},
    ]


def test_what_comes_before_the_user_is_one_system_message() -> None:
    developer = {"role": "developer", "content": "Be brief."}
    marker = "x-anthropic-billing-header: cch=1;\n"
    request = parsed(input=[developer, USER, developer], instructions=f"{marker}You add.")

    assert list(conversation_of(request).messages) == [
        {"role": "system", "content": "You add.\n\nBe brief."},
        USER,
        {"role": "system", "content": "Be brief."},
    ]
    assert request.ignored == ("instructions.x-anthropic-billing-header",)


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    function = {"type": "function", "name": "calc", "parameters": {"type": "object"}, "strict": True}
    request = parsed(tools=[function, PATCH])
    tools: Any = conversation_of(request).tools

    assert tools[0]["function"] == {"name": "calc", "strict": True, "parameters": {"type": "object"}}
    assert tools[1]["function"]["parameters"]["required"] == ["input"]
    assert (request.options.custom_tools, request.ignored) == (frozenset({"patch"}), ())


def test_tools_of_a_namespace_are_functions_that_bear_its_name() -> None:
    request = parsed(tools=[SHELL])
    tools: Any = conversation_of(request).tools

    assert [tool["function"]["name"] for tool in tools] == ["shell__run", "shell__patch"]
    assert request.options.namespaces == {"shell__run": ("shell", "run"), "shell__patch": ("shell", "patch")}
    assert request.options.custom_tools == {"shell__patch"}
    assert request.ignored == ("tools.description",)
    asked = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "run",
        "namespace": "shell",
        "arguments": "{}",
    }
    assert messages(USER, asked)[1]["tool_calls"] == [call("shell__run", "{}")]
    assert function_name("run", "mcp__shell__") == "mcp__shell__run"


def test_the_policy_reads_the_grammar_of_a_tool_in_its_description() -> None:
    request = parsed(tools=[PATCH | {"format": GRAMMAR}])
    tools: Any = conversation_of(request).tools

    assert (
        tools[0]["function"]["description"] == "edits\n\nThe input follows this grammar (lark):\nstart: /./"
    )
    assert request.ignored == ("tools.format",)


def test_tools_that_a_provider_runs_are_left_out_by_name() -> None:
    request = parsed(tools=[{"type": "web_search"}, {"type": "web_search"}, {"type": "tool_search"}])

    assert not conversation_of(request).tools
    assert request.ignored == ("tools.web_search", "tools.tool_search")


def test_fields_without_effect_are_named() -> None:
    request = parsed(
        store=True,
        user="u",
        include=["reasoning.encrypted_content", "file_search_call.results"],
        reasoning={"effort": "low"},
        text={"format": {"type": "text"}, "verbosity": "low"},
        parallel_tool_calls=False,
        truncation="auto",
        temperature=0.2,
    )

    assert request.ignored == (
        "user",
        "include.file_search_call.results",
        "truncation",
        "reasoning.effort",
        "text.verbosity",
    )
    assert request.flags["overridden"] == {"temperature": 0.2}
    assert parsed(store=False, text={"format": {"type": "text"}}).ignored == ()


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0]"),
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0]"),
        ({"input": [{"type": "reasoning", "encrypted_content": "sf1.AAAA"}]}, "input[0].encrypted_content"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"background": True}, "background"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "calc"}}, "tool_choice"),
        ({"tools": [{"type": "file_search"}]}, "tools[0]"),
        ({"tools": [PATCH | {"format": {"type": "grammar", "syntax": "lark"}}]}, "tools[0].format"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [SHELL | {"tools": 5}]}, "tools[0].tools"),
        ({"tools": [SHELL | {"tools": [{"type": "mcp"}]}]}, "tools[0].tools[0]"),
        ({"tools": [{"type": "function", "name": "shell__run"}, SHELL]}, "tools[1].tools[0]"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_logprobs_are_asked_for_by_inclusion_or_number() -> None:
    asked = [parsed(), parsed(include=["message.output_text.logprobs"]), parsed(top_logprobs=3)]
    assert [(one.options.has_logprobs, one.num_top) for one in asked] == [(False, 0), (True, 0), (True, 3)]
    assert [one.ignored for one in asked] == [()] * 3


def test_a_request_for_one_call_at_a_time_is_kept() -> None:
    tools = [{"type": "function", "name": "now", "parameters": {"type": "object"}}]
    for is_parallel in (False, True):
        request = parsed(tools=tools, parallel_tool_calls=is_parallel)
        assert (request.has_one_call, request.ignored) == (not is_parallel, ())
