"""Calls as JSON: between Hermes' marks (Qwen2.5, Qwen3 and many others), and Llama 3's, with or without its mark.

Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Llama 3: the answer is `{"name": …, "parameters": {…}}`,
several of them separated by semicolons or white space, and may begin with `<|python_tag|>`.
"""

import json
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any, NoReturn

import msgspec

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools, tool_names
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Models write line breaks into strings as they are.
_decode_first = JSONDecoder(strict=False, parse_constant=_no_constant).raw_decode

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
    written = arguments if isinstance(arguments, str) else _written(arguments)
    text = None if written is None else verbatim_arguments(written)
    identifier = value.get("id")
    call_id = identifier if isinstance(identifier, str) else ""
    return None if text is None else ToolCall(value["name"], text, call_id)


def verbatim_arguments(text: str) -> str | None:
    """Return arguments as the model wrote them; "{}" if there are none or null, and None if they are no JSON object."""
    shown = text.strip()
    try:
        value = msgspec.json.decode(shown or "{}")
    except (msgspec.DecodeError, RecursionError):
        return _with_line_breaks(shown)
    if not value and not isinstance(value, dict):
        return "{}" if value in (None, []) else None
    return shown or "{}" if isinstance(value, dict) else None


def _with_line_breaks(text: str) -> str | None:
    """Return arguments whose strings have line breaks or tabs as they are, which JSON would have escaped."""
    try:
        value, end = _decode_first(text)
    except (ValueError, RecursionError):
        return None
    return _written(value) if isinstance(value, dict) and end == len(text) else None


def _written(value: Any) -> str | None:
    """Return a value as JSON; None for half of a surrogate pair, which no text holds."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode().decode()
    except UnicodeEncodeError:
        return None


def json_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    """Return the calls of JSON objects, in a list or one after another; None if anything else is there."""
    try:
        values = list(_values(body.strip()))
    except (ValueError, RecursionError):
        return None
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    calls = [call_of(value, tools) for value in values]
    known = [call for call in calls if call is not None]
    return known if len(known) == len(calls) else None


def _values(rest: str) -> Iterator[Any]:
    """Yield the JSON values of a text, with semicolons or white space between them. Raises ValueError."""
    while rest:
        value, end = _decode_first(rest)
        yield value
        behind = rest[end:].lstrip()
        rest = behind.removeprefix(";").lstrip()
        if rest and rest == behind and not rest.startswith("{"):
            raise ValueError("there is text behind a call")


def _llama_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    """Return the calls of an answer that is nothing but calls: other JSON is an answer, of which nothing is lost."""
    if not body.lstrip().startswith("{"):
        return None
    try:
        is_call = all(_is_only_call(value) for value in _values(body.strip()))
    except (ValueError, RecursionError):
        return None
    return json_calls(body, tools) if is_call else None


def _is_only_call(value: Any) -> bool:
    """Return whether a value has nothing beside a call."""
    return isinstance(value, dict) and value.keys() <= {*_OF_CALLS, *_ARGUMENTS, "function"}


HERMES = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=json_calls)
LLAMA = CallSyntax(opening="<|python_tag|>", closing="", read=_llama_calls, bare="{")
