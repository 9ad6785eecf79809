"""Calls with a header and verbatim arguments between special tokens: DeepSeek, Kimi K2 and Mistral.

DeepSeek V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`; V3 and R1 write the word `function` before
the separator, then the name, and fence the arguments as a block of JSON. Kimi K2:
`<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`. Mistral from v11 on:
`[TOOL_CALLS]f[ARGS]{…}`, with `[CALL_ID]…` before `[ARGS]` in v11; before that `[TOOL_CALLS][{"name": …}, …]`.
"""

import re
from collections.abc import Callable

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.json_calls import json_calls, verbatim_arguments
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_DEEPSEEK = re.compile(r"\s*(?P<name>[\w.-]+)\s*<｜tool▁sep｜>(?P<arguments>.*)", re.DOTALL)
_DEEPSEEK_V3 = re.compile(
    r"\s*function<｜tool▁sep｜>\s*(?P<name>[\w.-]+)\s*```json\s*(?P<arguments>.*?)\s*```\s*", re.DOTALL
)
_KIMI = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)\s*<\|tool_call_argument_begin\|>(?P<arguments>.*)",
    re.DOTALL,
)
_MISTRAL = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\](?P<id>\w+))?\s*(?:\[ARGS\]|(?=\{))(?P<arguments>.*)", re.DOTALL
)


def _reader(pattern: re.Pattern[str]) -> Callable[[str, Tools], list[ToolCall] | None]:
    """Make a reader of bodies that a pattern divides into `name`, `arguments` and perhaps an `id`."""

    def read(body: str, tools: Tools) -> list[ToolCall] | None:
        call = pattern.fullmatch(body)
        arguments = verbatim_arguments(call["arguments"]) if call else None
        if call is None or arguments is None:
            return None
        return [ToolCall(call["name"], arguments, call.groupdict().get("id") or "")]

    return read


def _mistral_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    """Return the call of a header with arguments, or the calls of a JSON array or object."""
    return _read_mistral(body, tools) or json_calls(body, tools)


_read_mistral = _reader(_MISTRAL)
DEEPSEEK_V31 = CallSyntax(
    opening="<｜tool▁call▁begin｜>",
    closing="<｜tool▁call▁end｜>",
    read=_reader(_DEEPSEEK),
    leads=("<｜tool▁calls▁begin｜>",),
    trails=("<｜tool▁calls▁end｜>",),
)
DEEPSEEK_V3 = CallSyntax(
    opening=DEEPSEEK_V31.opening,
    closing=DEEPSEEK_V31.closing,
    read=_reader(_DEEPSEEK_V3),
    leads=DEEPSEEK_V31.leads,
    trails=DEEPSEEK_V31.trails,
)
KIMI_K2 = CallSyntax(
    opening="<|tool_call_begin|>",
    closing="<|tool_call_end|>",
    read=_reader(_KIMI),
    leads=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),  # the model writes both
    trails=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
)
MISTRAL = CallSyntax(opening="[TOOL_CALLS]", closing="", read=_mistral_calls)
