"""Parses and checks the body of a request for a response."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seamlessflow.core.protocol.openai_responses import ReasoningConfig, ResponseBody, TextConfig
from seamlessflow.data_plane.dialects.demands import ToolChoice, answer_demand, content_demand
from seamlessflow.data_plane.dialects.fields import (
    MAX_MESSAGES,
    MAX_TOP_LOGPROBS,
    body_read,
    bounded,
    check_ranges,
    overridden_flags,
    refuse_unless_neutral,
    tokens_limit,
    unknown_fields,
)
from seamlessflow.data_plane.dialects.responses.conversation import (
    NamedConversation,
    chat_messages,
    is_reference,
)
from seamlessflow.data_plane.dialects.responses.stored import StoredResponse
from seamlessflow.data_plane.dialects.responses.tools import OfferedTools, function_name, offered_tools
from seamlessflow.data_plane.dialects.system_text import (
    marker_flags,
    markers_removed,
    messages_without_markers,
)
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
RANGES: dict[str, tuple[float, float]] = {"temperature": (0, 2), "top_p": (0, 1)}
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "conversation": (None,),
    "prompt": (None,),
    "background": (None, False),
    "truncation": (None, "disabled", "auto"),
}
_NESTED: dict[str, type[msgspec.Struct]] = {"reasoning": ReasoningConfig, "text": TextConfig}

_decode = msgspec.json.Decoder(ResponseBody).decode


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What a response repeats of its request, and how it shows calls and reasoning."""

    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    custom_tools: frozenset[str]
    namespaces: dict[str, tuple[str, str]]  # by the name that the policy knows: the namespace, the name in it
    has_encrypted_reasoning: bool
    has_logprobs: bool
    num_top: int  # likeliest tokens with each one
    temperature: float
    previous: str | None = None
    is_stored: bool = True


ResponseRequest = TurnRequest[ResponseOptions]


def response_request_parse(raw: bytes, *, temperature: float) -> ResponseRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    body = body_read(_decode, raw, kind="response request")
    refuse_unless_neutral(body, _NEUTRAL)
    check_ranges(body, RANGES)
    tools = offered_tools(body.tools or [])
    instructions, markers = markers_removed(body.instructions or "")
    callable_tools = tools.functions if tools.functions and body.tool_choice != "none" else None
    form = None if body.text is None else body.text.format
    content = content_demand(form, "text.format", has_wrapper=False)
    demand = answer_demand(content, callable_tools, _tool_choice(body))
    items, item_markers = messages_without_markers(_items(body))
    if not items:
        raise bad_request("input must have text beside markers, got only markers.", param="input")
    options = _options(body, tools, temperature)
    has_names = body.previous_response_id is not None or any(map(is_reference, items))
    messages = [] if has_names else chat_messages(items, instructions)
    stored = _stored(options, num_instructions=len(instructions)).flags() if options.is_stored else {}

    def completed(recorded: RecordedTurns) -> Conversation:
        named = NamedConversation.begun(recorded, instructions, body.previous_response_id)
        for number, item in enumerate(items):
            named.add(item, f"input[{number}]")
        return Conversation(named.chat, callable_tools, {}, named.named())

    return TurnRequest(
        conversation=Conversation(messages, callable_tools, {}),
        num_choices=1,
        stop=(),
        max_tokens=tokens_limit("max_output_tokens", body.max_output_tokens),
        is_streamed=bool(body.stream),
        flags=stored
        | overridden_flags(body, temperature)
        | marker_flags(tuple(dict.fromkeys((*markers, *item_markers)))),
        ignored=(
            *unknown_fields(raw, ResponseBody, _NESTED),
            *_without_effect(body, markers),
            *tools.ignored,
            *(f"input.{name}" for name in item_markers),
        ),
        options=options,
        demand=demand,
        num_top=options.num_top,
        completed=completed if has_names else None,
        has_one_call=bool(callable_tools) and body.parallel_tool_calls is False,
    )


def _stored(options: ResponseOptions, *, num_instructions: int) -> StoredResponse:
    return StoredResponse(
        num_instructions=num_instructions,
        previous=options.previous,
        max_output_tokens=options.max_output_tokens,
        metadata=options.metadata,
        tool_choice=options.tool_choice,
        custom_tools=tuple(sorted(options.custom_tools)),
        namespaces=options.namespaces,
    )


def _items(body: ResponseBody) -> Sequence[dict[str, Any]]:
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    if not items:
        raise bad_request("input must have at least one item, got none.", param="input")
    if len(items) > MAX_MESSAGES:
        raise bad_request(f"input may have at most {MAX_MESSAGES} items, got {len(items)}.", param="input")
    return items


def _tool_choice(body: ResponseBody) -> ToolChoice:
    """Read `tool_choice`: a word, or an object that names a tool. Raises ApiError (400)."""
    choice, is_parallel = body.tool_choice, body.parallel_tool_calls is not False
    if choice in (None, "auto", "none"):
        return ToolChoice("tool_choice", is_parallel=is_parallel)
    if choice == "required":
        return ToolChoice("tool_choice", is_forced=True, is_parallel=is_parallel)
    name = choice.get("name") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(name, str):
        raise bad_request(
            f"tool_choice must be 'auto', 'none', 'required' or name a tool, got {choice!r}.",
            param="tool_choice",
        )
    named = function_name(name, choice.get("namespace"))
    return ToolChoice("tool_choice", is_forced=True, name=named)


def _options(body: ResponseBody, tools: OfferedTools, temperature: float) -> ResponseOptions:
    num_top = bounded("top_logprobs", body.top_logprobs, 0, MAX_TOP_LOGPROBS, default=0)
    return ResponseOptions(
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        custom_tools=tools.custom,
        namespaces=tools.namespaces,
        has_encrypted_reasoning=ENCRYPTED_REASONING in (body.include or ()),
        has_logprobs=LOGPROBS in (body.include or ()) or num_top > 0,
        num_top=num_top,
        temperature=temperature,
        previous=body.previous_response_id,
        is_stored=body.store is not False,
    )


def _without_effect(body: ResponseBody, markers: Sequence[str]) -> Iterator[str]:
    """Yield the known fields that were asked for in vain."""
    yield from (f"instructions.{name}" for name in markers)
    yield from (
        f"include.{name}" for name in body.include or () if name not in (ENCRYPTED_REASONING, LOGPROBS)
    )
    if body.truncation == "auto":
        yield "truncation"
    for name, config in (("reasoning", body.reasoning), ("text", body.text)):
        fields = msgspec.structs.asdict(config) if config is not None else {}
        yield from (
            f"{name}.{field}" for field, value in fields.items() if value is not None and field != "format"
        )
