"""Anthropic's bodies: what they become, which fields are ignored by name, and which values are refused."""

import json
from typing import Any

import pytest

from seamlessflow.data_plane.dialects.messages.conversation import chat_messages
from seamlessflow.data_plane.dialects.messages.request import (
    MessagesRequest,
    messages_request_parse,
    tokens_request_parse,
)
from seamlessflow.data_plane.dialects.reasoning_seal import reasoning_seal
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

USER: dict[str, Any] = {"role": "user", "content": "?"}


def parsed(**fields: Any) -> MessagesRequest:
    body = {"model": "claude", "max_tokens": 9, "messages": [USER], **fields}
    return messages_request_parse(json.dumps(body).encode(), temperature=1.0)


def conversation_of(request: MessagesRequest) -> Conversation:
    assert isinstance(request.conversation, Conversation)
    return request.conversation


def messages(*asked: dict[str, Any]) -> list[Any]:
    return list(conversation_of(parsed(messages=[*asked, USER])).messages[:-1])


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_blocks_become_chat_messages() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": reasoning_seal("hm")}
    call = {"type": "tool_use", "id": "call_1", "name": "calc", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "46"}]}

    assert messages(
        assistant(thought, {"type": "text", "text": "Let me"}, {"type": "text", "text": " see."}, call),
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ) == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "calc", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "46"},
        {"role": "user", "content": "So?"},
    ]


def test_consecutive_assistant_messages_are_one_turn() -> None:
    parts = [assistant({"type": "text", "text": text}) for text in ("a", "b")]

    assert messages(*parts) == [{"role": "assistant", "content": "ab"}]


def test_a_line_that_changes_with_every_request_leaves_the_system_prompt() -> None:
    marker = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"
    alone = parsed(system=[{"type": "text", "text": marker}, {"type": "text", "text": "You add."}])
    inside = parsed(system=f"{marker}\nYou add.")

    expected = {"role": "system", "content": "You add."}
    assert conversation_of(alone).messages[0] == conversation_of(inside).messages[0] == expected
    assert alone.ignored == ("system.x-anthropic-billing-header",)
    assert alone.flags == {"markers_removed": ["x-anthropic-billing-header"]}
    assert conversation_of(parsed(system="x-ray: no marker")).messages[0]["content"] == "x-ray: no marker"


def test_tools_get_the_form_of_chat() -> None:
    tool = {"name": "calc", "description": "adds", "input_schema": {"type": "object"}}
    function = {"name": "calc", "description": "adds", "parameters": {"type": "object"}}

    assert conversation_of(parsed(tools=[tool])).tools == [{"type": "function", "function": function}]
    cached = parsed(tools=[tool | {"cache_control": {"type": "ephemeral"}}])
    assert (cached.conversation, cached.ignored) == (parsed(tools=[tool]).conversation, ())
    assert not conversation_of(parsed(tools=[tool], tool_choice={"type": "none"})).tools


def test_fields_without_effect_are_named() -> None:
    request = parsed(
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        temperature=0.2,
        top_k=5,
    )

    assert request.ignored == ("metadata", "thinking.budget_tokens")
    assert request.flags == {"overridden": {"temperature": 0.2, "top_k": 5}}
    assert request.options.has_thinking


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"messages": []}, "messages"),
        ({"messages": [assistant({"type": "text", "text": "46"})]}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [assistant({"type": "tool_use", "name": "f", "input": "x"}), USER]}, "messages[0].content[0]"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "calc"}}, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}, "tools": [{"name": "g"}]}, "tool_choice"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}, "messages": []}, "thread"),
        ({"compaction": {"type": "enabled"}}, "compaction"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_edited_thinking_is_refused_and_that_of_other_servers_accepted() -> None:
    foreign = {"type": "thinking", "thinking": "hm", "signature": "EqQBCgIYAhIM"}
    omitted = {"type": "thinking", "thinking": "", "signature": reasoning_seal("hm")}
    for block in (foreign, omitted):
        assert messages(assistant(block))[0]["reasoning_content"] == "hm"

    for seal in (reasoning_seal("hm"), "sf1.AAAA", "sf1.!"):
        with pytest.raises(ApiError, match="Invalid `signature`"):
            messages(assistant({"type": "thinking", "thinking": "edited", "signature": seal}))


def test_a_token_count_needs_no_limit() -> None:
    conversation, ignored = tokens_request_parse(json.dumps({"messages": [USER], "top_p": 1}).encode())

    assert (list(conversation.messages), ignored) == ([USER], ("top_p",))


def test_a_failed_result_says_so_to_the_policy() -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": "no such file"}
    failed = chat_messages([{"role": "user", "content": [{**block, "is_error": True}]}])
    fine = chat_messages([{"role": "user", "content": [{**block, "is_error": False}]}])

    assert [message["content"] for message in (*failed, *fine)] == ["Error: no such file", "no such file"]


def test_a_request_for_one_call_at_a_time_is_kept() -> None:
    tools = [{"name": "now", "input_schema": {"type": "object"}}]
    for choice, has_one_call in (
        ({"type": "auto", "disable_parallel_tool_use": True}, True),
        ({"type": "auto"}, False),
    ):
        request = parsed(tools=tools, tool_choice=choice)
        assert (request.has_one_call, request.ignored) == (has_one_call, ())
