"""Calls whose arguments are tagged one by one: Qwen3-Coder and Qwen3.5, and GLM from 4.5 on.

Qwen: `<tool_call><function=f><parameter=key>value</parameter></function></tool_call>`. GLM: `<tool_call>f`, then
`<arg_key>key</arg_key><arg_value>value</arg_value>` for each argument, then `</tool_call>`. Values are plain text; the
tool's schema says which of them are numbers, booleans or structures.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))\s*", re.DOTALL)
_GLM_NAME = re.compile(r"\s*([^\s<>]+)\s*")
_GLM_ARGUMENT = re.compile(
    r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>(?=\s*(?:<arg_key>|\Z))\s*", re.DOTALL
)
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}


def _qwen_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    calls: list[ToolCall] = []
    for function in _consecutive(_FUNCTION, body):
        if function is None:
            return None
        name, inside = function
        arguments = _arguments(_consecutive(_PARAMETER, inside), name, tools, has_line_breaks=True)
        if arguments is None:
            return None
        calls.append(ToolCall(name, arguments))
    return calls


def _glm_calls(body: str, tools: Tools) -> list[ToolCall] | None:
    head = _GLM_NAME.match(body)
    if head is None:
        return None
    name = head.group(1)
    arguments = _arguments(
        _consecutive(_GLM_ARGUMENT, body[head.end() :]), name, tools, has_line_breaks=False
    )
    return None if arguments is None else [ToolCall(name, arguments)]


def _consecutive(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, str] | None]:
    """Yield (name, text) of each match; None at text that does not match."""
    at, end = 0, len(text.rstrip())
    while at < end:
        match = pattern.match(text, at)
        if match is None:
            yield None
            return
        yield match.group(1).strip(), match.group(2)
        at = match.end()


def _arguments(
    pairs: Iterable[tuple[str, str] | None], name: str, tools: Tools, *, has_line_breaks: bool
) -> str | None:
    schemas = _schemas(name, tools)
    values: dict[str, Any] = {}
    for pair in pairs:
        if pair is None:
            return None
        key, text = pair
        if has_line_breaks:  # the template puts each value on lines of its own
            text = text.removeprefix("\n").removesuffix("\n")
        values[key] = typed_value(text, schemas.get(key))
    return msgspec.json.encode(values).decode()


def _schemas(name: str, tools: Tools) -> dict[str, Any]:
    """Return the schemas of a tool's parameters by name; none if the tool is unknown."""
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, dict) else None
            return properties if isinstance(properties, dict) else {}
    return {}


def typed_value(text: str, schema: Any) -> Any:
    """Return the value that `text` stands for under a JSON schema; the text itself if it does not fit, or without one.

    Example: "3" is 3 under {"type": "integer"} and "3" under {"type": "string"} or {}.
    """
    types = _types(schema)
    if not types:
        return text
    if "boolean" in types and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError):
        return text
    accepted = tuple(kind for name in types for kind in _TYPES.get(name, ()))
    is_boolean_as_number = isinstance(value, bool) and "boolean" not in types
    return value if isinstance(value, accepted) and not is_boolean_as_number else text


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {name for name in named or () if isinstance(name, str)}
    for choices in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(choices) or ():
            types |= _types(choice)
    return types


QWEN_XML = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_qwen_calls)
GLM = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_glm_calls)
