"""Parses and checks the body of a chat completion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seamlessflow.core.protocol.openai_chat import ChatBody, StreamOptions
from seamlessflow.core.trajectory.messages import message_text
from seamlessflow.data_plane.dialects.answers import answers_joined
from seamlessflow.data_plane.dialects.demands import ToolChoice, answer_demand, content_demand
from seamlessflow.data_plane.dialects.fields import (
    MAX_CHOICES,
    MAX_MESSAGES,
    MAX_STOP_STRINGS,
    MAX_TOP_LOGPROBS,
    OPENAI_RANGES,
    body_read,
    bounded,
    check_ranges,
    overridden_flags,
    refuse_unless_neutral,
    reshaping,
    stop_strings,
    tokens_limit,
    unknown_fields,
)
from seamlessflow.data_plane.dialects.system_text import marker_flags, messages_without_markers
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

REASONING = "reasoning_content"
_REASONING_NAMES = (
    "reasoning",
    "thinking",
)  # as vLLM, OpenRouter and Ollama give it to clients, which send it back
_ROLES = ("system", "developer", "user", "assistant", "tool")

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "functions": (None, []),
    "min_tokens": (None, 0),
}


class _KnownStreamOptions(StreamOptions, forbid_unknown_fields=True):
    pass


class _KnownChatBody(ChatBody, forbid_unknown_fields=True):
    """A body without unknown fields, as most are: it is parsed once."""

    stream_options: _KnownStreamOptions | None = None


_decode_known = msgspec.json.Decoder(_KnownChatBody).decode
_decode = msgspec.json.Decoder(ChatBody).decode


@dataclass(frozen=True, slots=True)
class ChatOptions:
    has_usage: bool  # the stream ends with a chunk that has the usage
    has_logprobs: bool


ChatRequest = TurnRequest[ChatOptions]


def chat_request_parse(raw: bytes, *, temperature: float) -> ChatRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    body, ignored = body_read(_body, raw, kind="chat completion")
    refuse_unless_neutral(body, _NEUTRAL)
    check_ranges(body, OPENAI_RANGES)
    _check_messages(body.messages)
    _check_tools(body.tools or ())
    tools = body.tools if body.tools and body.tool_choice != "none" else None
    content = content_demand(body.response_format, "response_format", has_wrapper=True)
    demand = answer_demand(content, tools, _tool_choice(body))
    messages, markers = messages_without_markers([_with_reasoning(message) for message in body.messages])
    if not messages:
        raise bad_request("messages must have text beside markers, got only markers.", param="messages")
    return TurnRequest(
        conversation=Conversation(answers_joined(messages), tools, body.chat_template_kwargs or {}),
        num_choices=bounded("n", body.n, 1, MAX_CHOICES, default=1),
        stop=stop_strings("stop", body.stop, limit=MAX_STOP_STRINGS),
        max_tokens=_max_tokens(body),
        is_streamed=bool(body.stream),
        flags=({} if body.seed is None else {"seed": body.seed})
        | overridden_flags(body, temperature)
        | marker_flags(markers),
        ignored=(*ignored, *(f"messages.{name}" for name in markers)),
        options=_options(body),
        demand=demand,
        num_top=_num_top_logprobs(body),
        has_one_call=bool(tools) and body.parallel_tool_calls is False,
        reshaping=reshaping(body),
    )


def _body(raw: bytes) -> tuple[ChatBody, tuple[str, ...]]:
    """Return the body and the names of its unknown fields."""
    try:
        return _decode_known(raw), ()
    except msgspec.ValidationError:
        return _decode(raw), tuple(unknown_fields(raw, ChatBody, {"stream_options": StreamOptions}))


def _options(body: ChatBody) -> ChatOptions:
    return ChatOptions(
        has_usage=bool(body.stream_options and body.stream_options.include_usage),
        has_logprobs=bool(body.logprobs),
    )


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if not messages:
        raise bad_request("messages must have at least one message, got none.", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise bad_request(
            f"messages may have at most {MAX_MESSAGES} messages, got {len(messages)}.", param="messages"
        )
    for position, message in enumerate(messages):
        is_plain = type(message.get("content")) is str and "tool_calls" not in message
        if not is_plain or message.get("role") not in _ROLES:
            _check_message(message, f"messages[{position}]")


def _check_message(message: dict[str, Any], field: str) -> None:
    if message.get("role") not in _ROLES:
        raise bad_request(
            f"{field}.role must be one of {', '.join(_ROLES)}, got {message.get('role')!r}.", param=field
        )
    try:
        message_text(message.get("content"))
    except ValueError as error:
        raise bad_request(f"{field}.{error}.", param=field) from error
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(map(_is_function_call, calls)):
        raise bad_request(
            f"{field}.tool_calls must be a list of function calls, each with function.name.", param=field
        )


def _check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    for number, tool in enumerate(tools):
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_request(
                f"tools[{number}] must be a function with a name, got the type {tool.get('type')!r}.",
                param=f"tools[{number}]",
            )


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its reasoning under the one name that templates are asked for."""
    if message.get("role") != "assistant" or message.get(REASONING):
        return message
    thought = next((text for name in _REASONING_NAMES if isinstance(text := message.get(name), str)), None)
    if not thought:
        return message
    return {name: value for name, value in message.items() if name not in _REASONING_NAMES} | {
        REASONING: thought
    }


def _is_function_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _tool_choice(body: ChatBody) -> ToolChoice:
    """Read `tool_choice`: a word, or an object that names a function. Raises ApiError (400)."""
    choice, is_parallel = body.tool_choice, body.parallel_tool_calls is not False
    if choice in (None, "auto", "none"):
        return ToolChoice("tool_choice", is_parallel=is_parallel)
    if choice == "required":
        return ToolChoice("tool_choice", is_forced=True, is_parallel=is_parallel)
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise bad_request(
            f"tool_choice must be 'auto', 'none', 'required' or name a function, got {choice!r}.",
            param="tool_choice",
        )
    return ToolChoice("tool_choice", is_forced=True, name=name)


def _max_tokens(body: ChatBody) -> int | None:
    field = "max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens"
    return tokens_limit(field, getattr(body, field))


def _num_top_logprobs(body: ChatBody) -> int:
    number = bounded("top_logprobs", body.top_logprobs, 0, MAX_TOP_LOGPROBS, default=0)
    if number and not body.logprobs:
        raise bad_request(f"top_logprobs is {number}, but logprobs is not true.", param="top_logprobs")
    return number
