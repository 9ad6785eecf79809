"""Parses and checks the body of a chat completion.

A field that would change the sampling distribution is either overridden by the job's value, which is recorded with the
turn, or refused by name. Fields that the gateway does not know are listed as ignored. None is dropped silently.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from seamlessflow.core.protocol.openai_chat import ChatBody, StreamOptions
from seamlessflow.core.trajectory.messages import message_text
from seamlessflow.data_plane.errors import bad_request, param_of
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

Number = TypeVar("Number", int, float)
MAX_CHOICES = 64
MAX_MESSAGES = 16_384  # each costs the event loop a few microseconds, even if it is short
MAX_STOP_STRINGS = 4
MAX_TOP_LOGPROBS = 20
_ROLES = ("system", "developer", "user", "assistant", "tool")

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "functions": (None, []),
    "min_tokens": (None, 0),
}
# Values that OpenAI's API or vLLM accepts. Others are refused even though the job's own value is used.
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (-1, 1 << 31),
    "min_p": (0, 1),
}


class _KnownStreamOptions(StreamOptions, forbid_unknown_fields=True):
    pass


class _KnownChatBody(ChatBody, forbid_unknown_fields=True):
    """A body without unknown fields, as most are: it is parsed once."""

    stream_options: _KnownStreamOptions | None = None


_decode_known = msgspec.json.Decoder(_KnownChatBody).decode
_decode = msgspec.json.Decoder(ChatBody).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_options = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


@dataclass(frozen=True, slots=True)
class ChatRequest:
    conversation: Conversation
    has_tools: bool  # the answer is searched for tool calls
    num_choices: int
    stop: tuple[str, ...]
    max_tokens: int | None
    is_streamed: bool
    has_usage: bool  # the stream ends with a chunk that has the usage
    has_logprobs: bool
    has_top_logprobs: bool
    flags: dict[str, Any]  # recorded with the turn: the seed, and the values that the job overrides
    ignored: tuple[str, ...]  # unknown fields of the body


def chat_request_parse(raw: bytes, *, temperature: float) -> ChatRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    try:
        body, ignored = _body(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            f"The request body is not a valid chat completion: {error}.", param=param_of(str(error))
        ) from error
    except RecursionError as error:
        raise bad_request("The request body is nested too deeply.") from error
    for field, neutral in _NEUTRAL.items():
        if getattr(body, field) not in neutral:
            raise bad_request(
                f"{field} is not supported; leave it out or send {_shown(neutral)}.",
                param=field,
                code="unsupported_parameter",
            )
    for field, (low, high) in _RANGES.items():
        _bounded(field, getattr(body, field), low, high, default=low)
    _check_messages(body.messages)
    tools = _tools(body)
    return ChatRequest(
        conversation=Conversation(body.messages, tools, body.chat_template_kwargs or {}),
        has_tools=tools is not None,
        num_choices=_bounded("n", body.n, 1, MAX_CHOICES, default=1),
        stop=_stop(body.stop),
        max_tokens=_max_tokens(body),
        is_streamed=bool(body.stream),
        has_usage=bool(body.stream_options and body.stream_options.include_usage),
        has_logprobs=bool(body.logprobs),
        has_top_logprobs=_num_top_logprobs(body) > 0,
        flags=_flags(body, temperature),
        ignored=ignored,
    )


def _body(raw: bytes) -> tuple[ChatBody, tuple[str, ...]]:
    """Return the body and the names of its unknown fields."""
    try:
        return _decode_known(raw), ()
    except msgspec.ValidationError:
        return _decode(raw), tuple(_unknown_fields(raw))


def _unknown_fields(raw: bytes) -> Iterator[str]:
    fields = _decode_fields(raw)
    yield from (name for name in fields if name not in ChatBody.__struct_fields__)
    options = _decode_options(fields.get("stream_options", b"null")) or {}
    yield from (f"stream_options.{name}" for name in options if name not in StreamOptions.__struct_fields__)


def _shown(accepted: tuple[object, ...]) -> str:
    return " or ".join(msgspec.json.encode(value).decode() for value in accepted)


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if not messages:
        raise bad_request("messages must have at least one message, got none.", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise bad_request(
            f"messages may have at most {MAX_MESSAGES} messages, got {len(messages)}.", param="messages"
        )
    for position, message in enumerate(messages):
        field = f"messages[{position}]"
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


def _is_function_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _tools(body: ChatBody) -> list[dict[str, Any]] | None:
    if body.tool_choice not in (None, "auto", "none"):
        raise bad_request(
            f"tool_choice must be 'auto' or 'none', got {body.tool_choice!r}: forcing a tool call would change the "
            "sampling distribution.",
            param="tool_choice",
        )
    return body.tools if body.tools and body.tool_choice != "none" else None


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOP_STRINGS:
        raise bad_request(
            f"stop may have at most {MAX_STOP_STRINGS} strings, got {len(strings)}.", param="stop"
        )
    if not all(strings):
        raise bad_request("stop must not contain an empty string.", param="stop")
    return strings


def _max_tokens(body: ChatBody) -> int | None:
    field = "max_completion_tokens" if body.max_completion_tokens is not None else "max_tokens"
    asked: int | None = getattr(body, field)
    return None if asked is None else _bounded(field, asked, 1, 1 << 31, default=1)


def _num_top_logprobs(body: ChatBody) -> int:
    number = _bounded("top_logprobs", body.top_logprobs, 0, MAX_TOP_LOGPROBS, default=0)
    if number and not body.logprobs:
        raise bad_request(f"top_logprobs is {number}, but logprobs is not true.", param="top_logprobs")
    return number


def _bounded(field: str, value: Number | None, low: Number, high: Number, *, default: Number) -> Number:
    if value is None:
        return default
    if not low <= value <= high:
        raise bad_request(f"{field} must be from {low} to {high}, got {value}.", param=field)
    return value


def _flags(body: ChatBody, temperature: float) -> dict[str, Any]:
    seed = {} if body.seed is None else {"seed": body.seed}
    return seed | _overrides(body, temperature)


def _overrides(body: ChatBody, temperature: float) -> dict[str, Any]:
    fixed = {"temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    asked = {name: getattr(body, name) for name in fixed}
    overridden = {
        name: value
        for name, value in asked.items()
        if value is not None and value != fixed[name] and not (name == "top_k" and value == 0)
    }
    return {"overridden": overridden} if overridden else {}
