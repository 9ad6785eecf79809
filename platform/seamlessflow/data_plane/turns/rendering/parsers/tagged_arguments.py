"""Calls whose arguments are tagged one by one: Qwen3-Coder and Qwen3.5, and GLM from 4.5 on.

Qwen: `<tool_call><function=f><parameter=key>value</parameter></function></tool_call>`. GLM: `<tool_call>f`, then
`<arg_key>key</arg_key><arg_value>value</arg_value>` for each argument, then `</tool_call>`. Values are plain text; the
tool's schema says which of them are numbers, booleans or structures.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from seamlessflow.core.guidance.tagged_values import resolved, typed_value
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))\s*", re.DOTALL)
_GLM_NAME = re.compile(r"\s*([^\s<>]+)\s*")
_GLM_ARGUMENT = re.compile(
    r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>(?=\s*(?:<arg_key>|\Z))\s*", re.DOTALL
)


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
    root = _parameters(name, tools)
    schemas = _properties(root)
    values: dict[str, Any] = {}
    for pair in pairs:
        if pair is None:
            return None
        key, text = pair
        if has_line_breaks:  # the template puts each value on lines of its own
            text = text.removeprefix("\n").removesuffix("\n")
        values[key] = typed_value(text, schemas.get(key), root)
    return msgspec.json.encode(values).decode()


def _parameters(name: str, tools: Tools) -> dict[str, Any]:
    """Return the schema of a tool's parameters; {} if the tool is unknown."""
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            return parameters if isinstance(parameters, dict) else {}
    return {}


def _properties(parameters: dict[str, Any]) -> dict[str, Any]:
    found = resolved(parameters, parameters)
    properties = found.get("properties") if isinstance(found, dict) else None
    return properties if isinstance(properties, dict) else {}


QWEN_XML = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_qwen_calls)
GLM = CallSyntax(opening="<tool_call>", closing="</tool_call>", read=_glm_calls)
