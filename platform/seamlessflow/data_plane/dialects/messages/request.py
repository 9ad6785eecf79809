"""Parses and checks the body of a request for a message, or for the number of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seamlessflow.core.guidance.answer_grammar import ToolDemand
from seamlessflow.core.protocol.anthropic_messages import (
    MessagesBody,
    MessageTool,
    MessageToolChoice,
    OutputConfig,
    ThinkingConfig,
    TokensBody,
)
from seamlessflow.data_plane.dialects.demands import ToolChoice, answer_demand, content_demand
from seamlessflow.data_plane.dialects.fields import (
    MAX_MESSAGES,
    body_read,
    check_ranges,
    overridden_flags,
    refuse_unless_neutral,
    stop_strings,
    tokens_limit,
    unknown_fields,
)
from seamlessflow.data_plane.dialects.messages.conversation import blocks_of, chat_messages, paragraphs
from seamlessflow.data_plane.dialects.system_text import (
    marker_flags,
    markers_removed,
    messages_without_markers,
)
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

MAX_STOP_SEQUENCES = 64
RANGES: dict[str, tuple[float, float]] = {"temperature": (0, 1), "top_p": (0, 1), "top_k": (0, 1 << 31)}
_NEUTRAL: dict[str, tuple[object, ...]] = {"thread": (None,), "compaction": (None,)}
_NESTED: dict[str, type[msgspec.Struct]] = {
    "tool_choice": MessageToolChoice,
    "thinking": ThinkingConfig,
    "output_config": OutputConfig,
}

_decode = msgspec.json.Decoder(MessagesBody).decode
_decode_tokens = msgspec.json.Decoder(TokensBody).decode


@dataclass(frozen=True, slots=True)
class MessageOptions:
    has_thinking: bool  # the answer shows thinking blocks
    is_thinking_omitted: bool  # only by their signatures
    asks_for_caching: bool = False  # the usage counts which tokens of the prompt were cached


MessagesRequest = TurnRequest[MessageOptions]


def messages_request_parse(raw: bytes, *, temperature: float) -> MessagesRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    body = body_read(_decode, raw, kind="message request")
    check_ranges(body, RANGES)
    conversation, markers = _conversation(body)
    demand = _demand(body, conversation.tools)
    flags = overridden_flags(body, temperature) | marker_flags(markers)
    return TurnRequest(
        conversation=conversation,
        num_choices=1,
        stop=stop_strings("stop_sequences", body.stop_sequences, limit=MAX_STOP_SEQUENCES),
        max_tokens=tokens_limit("max_tokens", body.max_tokens),
        is_streamed=bool(body.stream),
        flags=flags,
        ignored=(*unknown_fields(raw, MessagesBody, _NESTED), *_without_effect(body, markers)),
        options=_options(body),
        demand=demand,
        has_one_call=bool(conversation.tools) and not _tool_choice(body.tool_choice).is_parallel,
    )


def tokens_request_parse(raw: bytes) -> tuple[Conversation, tuple[str, ...]]:
    """Parse the body of a token count; return its conversation and its ignored fields. Raises ApiError (400)."""
    body = body_read(_decode_tokens, raw, kind="token count")
    conversation, markers = _conversation(body)
    _demand(body, conversation.tools)  # what a message refuses is refused here too
    return conversation, (*unknown_fields(raw, TokensBody, _NESTED), *_without_effect(body, markers))


def _conversation(body: TokensBody) -> tuple[Conversation, Sequence[str]]:
    """Return the conversation and the markers that were taken out of its system prompt."""
    _check(body)
    blocks = blocks_of(body.system, "system")
    parts = [markers_removed(paragraphs([block], "system")) for block in blocks]
    system = paragraphs(
        [{"type": "text", "text": text} for text, names in parts if text or not names], "system"
    )
    first = [{"role": "system", "content": system}] if system else []
    markers = tuple(dict.fromkeys(name for _, names in parts for name in names))
    messages, more = messages_without_markers(chat_messages(body.messages))
    return Conversation([*first, *messages], _tools(body), {}), tuple(dict.fromkeys((*markers, *more)))


def _check(body: TokensBody) -> None:
    refuse_unless_neutral(body, _NEUTRAL)
    if not body.messages:
        raise bad_request("messages must have at least one message, got none.", param="messages")
    if len(body.messages) > MAX_MESSAGES:
        raise bad_request(
            f"messages may have at most {MAX_MESSAGES} messages, got {len(body.messages)}.", param="messages"
        )
    if body.messages[-1].get("role") == "assistant":
        raise bad_request(
            "messages must end with a user message: an answer cannot be prefilled.",
            param="messages",
            code="unsupported_parameter",
        )


def _tools(body: TokensBody) -> list[dict[str, Any]] | None:
    if not body.tools or (body.tool_choice is not None and body.tool_choice.type == "none"):
        return None
    return [_tool(tool, f"tools[{number}]") for number, tool in enumerate(body.tools)]


def _demand(body: TokensBody, tools: Sequence[Any] | None) -> ToolDemand | None:
    form = None if body.output_config is None else body.output_config.format
    content = content_demand(form, "output_config.format", has_wrapper=False)
    return answer_demand(content, tools, _tool_choice(body.tool_choice))


def _tool_choice(choice: MessageToolChoice | None) -> ToolChoice:
    """Read `tool_choice`. Raises ApiError (400)."""
    if choice is None:
        return ToolChoice("tool_choice")
    if choice.type not in ("auto", "none", "any", "tool"):
        raise bad_request(
            f"tool_choice.type must be 'auto', 'any', 'tool' or 'none', got {choice.type!r}.",
            param="tool_choice",
        )
    if choice.type == "tool" and choice.name is None:
        raise bad_request("tool_choice of type 'tool' must have a name.", param="tool_choice")
    return ToolChoice(
        "tool_choice",
        is_forced=choice.type in ("any", "tool"),
        name=choice.name if choice.type == "tool" else None,
        is_parallel=not choice.disable_parallel_tool_use,
    )


def _tool(tool: MessageTool, field: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise bad_request(
            f"{field} has the type {tool.type!r}; only tools of the client, with a name and an input_schema, are "
            "supported.",
            param=field,
            code="unsupported_parameter",
        )
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function | {"parameters": tool.input_schema or {}}}


def _options(body: MessagesBody) -> MessageOptions:
    thinking = body.thinking
    return MessageOptions(
        has_thinking=thinking is not None and thinking.type != "disabled",
        is_thinking_omitted=thinking is not None and thinking.display == "omitted",
        asks_for_caching=_asks_for_caching(body),
    )


def _asks_for_caching(body: MessagesBody) -> bool:
    """Return whether `cache_control` stands anywhere: at the request, a tool, a block, or one in a tool's result."""
    if body.cache_control is not None or any(tool.cache_control is not None for tool in body.tools or ()):
        return True
    contents = (body.system, *(message.get("content") for message in body.messages))
    return any(map(_has_cache_control, contents))


def _has_cache_control(content: Any) -> bool:
    return isinstance(content, list) and any(
        block.get("cache_control") is not None or _has_cache_control(block.get("content"))
        for block in content
        if isinstance(block, dict)
    )


def _without_effect(body: TokensBody, markers: Sequence[str]) -> list[str]:
    """Return the known fields that were asked for in vain."""
    names = [f"system.{name}" for name in markers]
    if body.thinking is not None and body.thinking.budget_tokens is not None:
        names.append("thinking.budget_tokens")
    if body.output_config is not None and body.output_config.effort is not None:
        names.append("output_config.effort")
    return names
