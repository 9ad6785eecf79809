"""Calls as JSON: between Hermes' marks (Qwen2.5, Qwen3 and many others), and Llama 3's, with or without its mark.

Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Llama 3: the answer is `{"name": …, "parameters": {…}}`,
several of them separated by semicolons or white space, and may begin with `<|python_tag|>`.
"""

from json import JSONDecodeError, JSONDecoder
from typing import Any

import msgspec

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools, tool_names
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_decode_first = JSONDecoder().raw_decode


_ARGUMENTS = ("arguments", "parameters")
_OF_CALLS = frozenset({"name", "id", "type"})


def call_of(value: Any, tools: Tools) -> ToolCall | None:
    """Return the call that a JSON object describes; None if it describes none.

    Without arguments it is one only if it names an offered tool, and says nothing else. The form in which clients get
    calls, {"type": "function", "function": {…}}, counts as the call in it.
    """
    if (
        isinstance(value, dict)
        and value.get("type") == "function"
        and isinstance(value.get("function"), dict)
    ):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    field = next((name for name in _ARGUMENTS if name in value), None)
    if field is None and not (value.keys() <= _OF_CALLS and value["name"] in tool_names(tools)):
        return None
    arguments = None if field is None else value[field]
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    text = verbatim_arguments(written)
    identifier = value.get("id")
    call_id = identifier if isinstance(identifier, str) else ""
    return None if text is None else ToolCall(value["name"], text, call_id)


def verbatim_arguments(text: str) -> str | None:
    """Return arguments as the model wrote them; "{}" if there are none or null, and None if they are no JSON object."""
    shown = text.strip()
    try:
        value = msgspec.json.decode(shown or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    if value is None:
        return "{}"
    return shown or "{}" if isinstance(value, dict) else None


def _hermes_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    try:
        call = call_of(msgspec.json.decode(body.strip()), tools)
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
        call = call_of(value, tools)
        if call is None:
            return None
        calls.append(call)
        rest = rest[end:].lstrip()
        if rest.startswith(";"):
            rest = rest[1:].lstrip()
        elif rest and not rest.startswith("{"):
            return None
    return calls


HERMES = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_hermes_calls)
LLAMA = CallSyntax(opening="<|python_tag|>", closing="", read=_llama_calls, bare="{")
