"""Parses and checks the body of a request to Google's API, for an answer or for the number of its tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from seamlessflow.core.guidance.answer_grammar import ToolDemand
from seamlessflow.core.protocol.google_gemini import GeminiBody, GeminiConfig, GeminiTokensBody
from seamlessflow.data_plane.dialects.demands import ANY_OBJECT, answer_demand
from seamlessflow.data_plane.dialects.events import EVENT_STREAM, JSON_STREAM
from seamlessflow.data_plane.dialects.fields import (
    MAX_CHOICES,
    MAX_MESSAGES,
    MAX_TOP_LOGPROBS,
    body_read,
    bounded,
    check_ranges,
    overridden_flags,
    reshaping,
    stop_strings,
    tokens_limit,
    unsupported,
)
from seamlessflow.data_plane.dialects.gemini.conversation import chat_messages, parts_of, text_of
from seamlessflow.data_plane.dialects.gemini.names import camel
from seamlessflow.data_plane.dialects.gemini.tools import offered_tools, schema_read
from seamlessflow.data_plane.dialects.messages.conversation import PARAGRAPH
from seamlessflow.data_plane.dialects.system_text import marker_flags, markers_removed
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

MAX_STOP_SEQUENCES = 64
RANGES: dict[str, tuple[float, float]] = {"temperature": (0, 2), "top_p": (0, 1), "top_k": (0, 1 << 31)}
CONFIG = "generationConfig"
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain"
Kind = TypeVar("Kind", bound=msgspec.Struct)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Penalties(msgspec.Struct):
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class GeminiOptions:
    has_thoughts: bool
    has_logprobs: bool


GeminiRequest = TurnRequest[GeminiOptions]


def gemini_request_parse(
    raw: bytes, *, temperature: float, is_streamed: bool = False, is_list: bool = False
) -> GeminiRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    fields = _fields(raw)
    body = _converted(fields, GeminiBody)
    config = body.generation_config or GeminiConfig()
    _check(body, config)
    tools = offered_tools(body.tools or [], body.tool_config)
    demand = answer_demand(_content_demand(config), tools.callable, tools.choice)
    conversation, markers = _conversation(body, tools.functions if tools.callable is not None else None)
    num_top = _num_top(config)
    thinking = config.thinking_config
    return TurnRequest(
        conversation=conversation,
        num_choices=bounded(f"{CONFIG}.candidateCount", config.candidate_count, 1, MAX_CHOICES, default=1),
        stop=stop_strings(f"{CONFIG}.stopSequences", config.stop_sequences, limit=MAX_STOP_SEQUENCES),
        max_tokens=tokens_limit(f"{CONFIG}.maxOutputTokens", config.max_output_tokens),
        is_streamed=is_streamed,
        flags=({} if config.seed is None else {"seed": config.seed})
        | overridden_flags(config, temperature)
        | marker_flags(markers),
        ignored=(
            *_ignored(fields, config),
            *tools.ignored,
            *(f"systemInstruction.{name}" for name in markers),
        ),
        options=GeminiOptions(
            has_thoughts=bool(thinking and thinking.include_thoughts),
            has_logprobs=bool(config.response_logprobs),
        ),
        demand=demand,
        num_top=num_top,
        reshaping=reshaping(_Penalties(config.frequency_penalty, config.presence_penalty)),
        stream_type=JSON_STREAM if is_list else EVENT_STREAM,
    )


def gemini_tokens_parse(raw: bytes) -> tuple[Conversation, tuple[str, ...]]:
    """Parse a body of `countTokens`. Return its conversation and the fields without effect. Raises ApiError (400)."""
    fields = _fields(raw)
    asked = _converted(fields, GeminiTokensBody)
    whole = camel(asked.generate_content_request or {"contents": asked.contents})
    body = _converted(whole, GeminiBody)
    tools = offered_tools(body.tools or [], body.tool_config)
    conversation, _ = _conversation(body, tools.functions if tools.callable is not None else None)
    return conversation, tools.ignored


def _fields(raw: bytes) -> dict[str, Any]:
    """Return the fields of a body, with the names of Google's JSON."""
    fields = camel(body_read(_decode, raw, kind="Gemini request"))
    config = fields.get(CONFIG)
    if isinstance(config, dict):
        fields[CONFIG] = camel(config)
        thinking = fields[CONFIG].get("thinkingConfig")
        if isinstance(thinking, dict):
            fields[CONFIG]["thinkingConfig"] = camel(thinking)
    return fields


def _converted(fields: Mapping[str, Any], kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(f"The request body is not a valid Gemini request: {error}.") from error


def _check(body: GeminiBody, config: GeminiConfig) -> None:
    check_ranges(config, RANGES)
    if body.cached_content:
        raise unsupported("cachedContent", "send the whole conversation")
    if any(kind.upper() != "TEXT" for kind in config.response_modalities or ()):
        raise unsupported(f"{CONFIG}.responseModalities", 'leave it out or send ["TEXT"]')


def _conversation(
    body: GeminiBody, tools: list[dict[str, Any]] | None
) -> tuple[Conversation, tuple[str, ...]]:
    """Return the conversation, and the markers that were removed from its system instruction."""
    contents = [body.contents] if isinstance(body.contents, dict) else body.contents
    if isinstance(contents, str):
        contents = [{"role": "user", "parts": [{"text": contents}]}]
    if not contents:
        raise bad_request("contents must have at least one content, got none.", param="contents")
    if len(contents) > MAX_MESSAGES:
        raise bad_request(
            f"contents may have at most {MAX_MESSAGES} contents, got {len(contents)}.", param="contents"
        )
    system, markers = markers_removed(_system(body.system_instruction))
    messages = [{"role": "system", "content": system}] if system else []
    return Conversation([*messages, *chat_messages(contents)], tools, {}), markers


def _system(instruction: Mapping[str, Any] | str | None) -> str:
    if instruction is None:
        return ""
    field = "systemInstruction"
    parts = parts_of(instruction, field)
    return PARAGRAPH.join(text_of(part, f"{field}.parts[{number}]") for number, part in enumerate(parts))


def _content_demand(config: GeminiConfig) -> ToolDemand | None:
    kind = config.response_mime_type or TEXT_TYPE
    if kind not in (TEXT_TYPE, JSON_TYPE):
        field = f"{CONFIG}.responseMimeType"
        raise bad_request(f"{field} must be {TEXT_TYPE} or {JSON_TYPE}, got {kind!r}.", param=field)
    if config.response_json_schema is not None:
        return ToolDemand(f"{CONFIG}.responseJsonSchema", schema=config.response_json_schema)
    if config.response_schema is not None:
        field = f"{CONFIG}.responseSchema"
        return ToolDemand(field, schema=schema_read(config.response_schema, field))
    return ToolDemand(f"{CONFIG}.responseMimeType", schema=ANY_OBJECT) if kind == JSON_TYPE else None


def _num_top(config: GeminiConfig) -> int:
    field = f"{CONFIG}.logprobs"
    number = bounded(field, config.logprobs, 0, MAX_TOP_LOGPROBS, default=0)
    if number and not config.response_logprobs:
        raise bad_request(f"{field} is {number}, but responseLogprobs is not true.", param=field)
    return number


def _ignored(fields: Mapping[str, Any], config: GeminiConfig) -> Iterator[str]:
    """Yield the fields of a body that have no effect."""
    known = {*GeminiBody.__struct_encode_fields__, "model"}
    yield from (name for name in fields if name not in known)
    inner = fields.get(CONFIG) or {}
    yield from (f"{CONFIG}.{name}" for name in inner if name not in GeminiConfig.__struct_encode_fields__)
    for name in inner.get("thinkingConfig") or {}:
        if name != "includeThoughts":
            yield f"{CONFIG}.thinkingConfig.{name}"
