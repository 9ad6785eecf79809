"""Calls as JSON: between Hermes' marks (Qwen2.5, Qwen3 and many others), and Llama 3's, with or without its mark.

Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Llama 3: the answer is `{"name": …, "parameters": {…}}`,
several of them separated by semicolons, and may begin with `<|python_tag|>`.
"""

from collections.abc import Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any

import msgspec

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_decode_first = JSONDecoder().raw_decode


def call_of(value: Any, *, fields: Sequence[str] = ("arguments",)) -> ToolCall | None:
    """Return the call that a JSON object describes; None if it describes none. `fields`: where arguments may be."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments: Any = next((value[field] for field in fields if field in value), {})
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    identifier = value.get("id")
    return ToolCall(value["name"], text, identifier if isinstance(identifier, str) else "")


def verbatim_arguments(text: str) -> str | None:
    """Return arguments as the model wrote them; "{}" if there are none, and None if they are no JSON object."""
    shown = text.strip()
    try:
        value = msgspec.json.decode(shown or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return shown or "{}" if isinstance(value, dict) else None


def _hermes_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    try:
        call = call_of(msgspec.json.decode(body.strip()))
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if call is None else [call]


def _llama_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    calls: list[ToolCall] = []
    rest = body.strip()
    while rest:
        try:
            value, end = _decode_first(rest)
        except (JSONDecodeError, RecursionError):
            return None
        call = call_of(value, fields=("parameters", "arguments"))
        if call is None:
            return None
        calls.append(call)
        rest = rest[end:].lstrip()
        if rest and not rest.startswith(";"):
            return None
        rest = rest[1:].lstrip()
    return calls


HERMES = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_hermes_calls)
LLAMA = CallSyntax(opening="<|python_tag|>", closing="", read=_llama_calls, bare="{")
