"""Calls with a header and verbatim arguments between special tokens: DeepSeek, Kimi K2 and Mistral.

DeepSeek V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`; V3 and R1 write the word `function` before
the separator, then the name, and fence the arguments as a block of JSON. Kimi K2:
`<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`. Mistral from v11 on:
`[TOOL_CALLS]f[ARGS]{…}`, with `[CALL_ID]…` before `[ARGS]` in v11; before that `[TOOL_CALLS][{"name": …}, …]`.
"""

import re

import msgspec

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.json_calls import call_of
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_DEEPSEEK_HEAD = re.compile(r"\s*([\w.-]+)\s*<｜tool▁sep｜>")
_DEEPSEEK_V3 = re.compile(r"\s*function<｜tool▁sep｜>\s*([\w.-]+)\s*```json\s*(.*?)\s*```\s*", re.DOTALL)
_KIMI_HEAD = re.compile(r"\s*((?:functions\.)?([\w.-]+?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>")
_MISTRAL_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\](\w+))?\s*(?:\[ARGS\]|(?=\{))")


def _deepseek_head(body: str) -> tuple[ToolCall, int] | None:
    head = _DEEPSEEK_HEAD.match(body)
    return None if head is None else (ToolCall(head.group(1), ""), head.end())


def _deepseek_v3_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    call = _DEEPSEEK_V3.fullmatch(body)
    if call is None:
        return None
    try:
        arguments = msgspec.json.decode(call.group(2))
    except (msgspec.DecodeError, RecursionError):
        return None
    return [ToolCall(call.group(1), call.group(2))] if isinstance(arguments, dict) else None


def _kimi_head(body: str) -> tuple[ToolCall, int] | None:
    head = _KIMI_HEAD.match(body)
    return None if head is None else (ToolCall(head.group(2), "", call_id=head.group(1)), head.end())


def _mistral_head(body: str) -> tuple[ToolCall, int] | None:
    head = _MISTRAL_HEAD.match(body)
    return None if head is None else (ToolCall(head.group(1), "", call_id=head.group(2) or ""), head.end())


def _mistral_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    """Return the calls of a JSON array, or of a single JSON object."""
    try:
        values = msgspec.json.decode(body.strip())
    except (msgspec.DecodeError, RecursionError):
        return None
    calls = [call_of(value) for value in (values if isinstance(values, list) else [values])]
    known = [call for call in calls if call is not None]
    return known if len(known) == len(calls) else None


def _no_calls(body: str, tools: Tools) -> None:
    return None  # a call whose header cannot be read


DEEPSEEK_V31 = CallSyntax(
    opening="<｜tool▁call▁begin｜>",
    closing="<｜tool▁call▁end｜>",
    read=_no_calls,
    head=_deepseek_head,
    leads=("<｜tool▁calls▁begin｜>",),
    trails=("<｜tool▁calls▁end｜>",),
)
DEEPSEEK_V3 = CallSyntax(
    opening=DEEPSEEK_V31.opening,
    closing=DEEPSEEK_V31.closing,
    read=_deepseek_v3_calls,
    leads=DEEPSEEK_V31.leads,
    trails=DEEPSEEK_V31.trails,
)
KIMI_K2 = CallSyntax(
    opening="<|tool_call_begin|>",
    closing="<|tool_call_end|>",
    read=_no_calls,
    head=_kimi_head,
    leads=("<|tool_calls_section_begin|>",),
    trails=("<|tool_calls_section_end|>",),
)
MISTRAL = CallSyntax(opening="[TOOL_CALLS]", closing="", read=_mistral_calls, head=_mistral_head)
