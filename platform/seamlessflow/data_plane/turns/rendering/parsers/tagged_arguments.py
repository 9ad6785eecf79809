"""Calls whose arguments are tagged one by one: Qwen3-Coder and Qwen3.5, and GLM from 4.5 on.

Qwen: `<tool_call><function=f><parameter=key>value</parameter></function></tool_call>`. GLM: `<tool_call>f`, then
`<arg_key>key</arg_key><arg_value>value</arg_value>` for each argument, then `</tool_call>`. Values are plain text; the
tool's schema says which of them are numbers, booleans or structures. `tagged_text` finds the tags.
"""

import re
from functools import partial
from typing import Any

import msgspec

from seamlessflow.core.guidance.tagged_values import resolved, typed_value
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.json_calls import json_calls
from seamlessflow.data_plane.turns.rendering.parsers.marked_calls import CallSyntax, Reader
from seamlessflow.data_plane.turns.rendering.parsers.tagged_text import (
    MAX_ENDS,
    Pairs,
    functions,
    loose_pairs,
    strict_pairs,
    tags,
)

_HEAD = re.compile(r"\s*<function=[\"']?([^<>\n\"']+)[\"']?>")
_TAIL = re.compile(r"</function>(?=\s*(?:<function=|\Z))\s*")
_END = "</function>"
_QWEN = tags(r"<parameter=[\"']?([^<>\n\"']+)[\"']?>", "</parameter>")
_GLM_NAME = re.compile(r"\s*([^\s<>]+)\s*")
_GLM = tags(r"<arg_key>([^<>]*)</arg_key>\s*<arg_value>", "</arg_value>")


class _TagScan:
    """Follows a call whose arguments are tagged: a mark may be text as long as the call cannot be read."""

    def __init__(self, head: re.Pattern[str], read: Reader) -> None:
        self._head, self._read = head, read
        self._num_ends = 0

    def is_inside(self, body: str) -> bool:
        self._num_ends += 1
        is_call = self._head.match(body) is not None and self._num_ends <= MAX_ENDS
        return is_call and self._read(body, ()) is None

    def end(self, body: str) -> int | None:
        return None


def _qwen_calls(body: str, tools: Tools, *, is_strict: bool = True) -> list[ToolCall] | None:
    if _HEAD.match(body) is None:
        return json_calls(body, tools)  # as Hermes writes them: models of this family were trained on both
    if not is_strict and _lacks_end(body):
        body += _END
    if not body.rstrip().endswith(_END):
        return None
    found = functions(body, _HEAD, _TAIL, _QWEN, is_strict=is_strict)
    if found is None:
        return None
    # The template puts each value on lines of its own.
    return [ToolCall(name, _arguments(_without_line_breaks(pairs), name, tools)) for name, pairs in found]


def _lacks_end(body: str) -> bool:
    """Return whether only the closing tag of the function is missing: its last argument has ended, or it has none."""
    head, whole = _HEAD.match(body), body.rstrip()
    return whole.endswith(_QWEN.closing) or (head is not None and head.end() == len(whole))


def _glm_calls(body: str, tools: Tools, *, is_strict: bool = True) -> list[ToolCall] | None:
    head = _GLM_NAME.match(body)
    if head is None or body.lstrip().startswith(("{", "[")):
        return json_calls(body, tools)
    name = head.group(1)
    pairs = (strict_pairs if is_strict else loose_pairs)(body[head.end() :], _GLM)
    return None if pairs is None else [ToolCall(name, _arguments(pairs, name, tools))]


def _without_line_breaks(pairs: Pairs) -> Pairs:
    return [(name, value.removeprefix("\n").removesuffix("\n")) for name, value in pairs]


def _arguments(pairs: Pairs, name: str, tools: Tools) -> str:
    root = _parameters(name, tools)
    schemas = _properties(root)
    values = {key: typed_value(text, schemas.get(key), root) for key, text in pairs}
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


QWEN_XML = CallSyntax(
    opening="<tool_call>",
    closing="</tool_call>",
    read=_qwen_calls,
    scan=partial(_TagScan, _HEAD, _qwen_calls),
    read_loosely=partial(_qwen_calls, is_strict=False),
    named="<function={}>",
    begins=("<parameter=", "</function>"),
)
GLM = CallSyntax(
    opening="<tool_call>",
    closing="</tool_call>",
    read=_glm_calls,
    scan=partial(_TagScan, re.compile(r"\s*[^\s<>]+\s*<arg_key>"), _glm_calls),
    read_loosely=partial(_glm_calls, is_strict=False),
    ends_itself=False,
)
