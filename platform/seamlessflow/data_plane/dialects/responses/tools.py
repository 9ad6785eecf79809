"""The tools of a response: to the policy, functions; to the client, calls of the kind that it offered.

A custom tool is a function with one text argument. A policy may call it with other arguments. Its text is then all of
the arguments, and the item's id shows it (`RAW_PREFIX`), so that the call joins its tree when it is returned. A tool
in a namespace is a function whose name begins with the namespace. Tools that a provider runs, and that coding agents
offer unasked, are left out and named as ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from seamlessflow.data_plane.errors import ApiError, bad_request

TEXT = "input"  # the argument of a custom tool
RAW_PREFIX = "ctcr_"
CUSTOM_PREFIX = "ctc_"
_PARAMETERS = {"type": "object", "properties": {TEXT: {"type": "string"}}, "required": [TEXT]}
_SEPARATOR = "__"  # between a namespace and a name, as between an MCP server and its tool
_LEFT_OUT = ("web_search", "web_search_preview", "image_generation", "tool_search")


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """`functions` has the form of chat. `custom` and `namespaces` are keyed by the names that the policy knows."""

    functions: list[dict[str, Any]]
    custom: frozenset[str]
    namespaces: dict[str, tuple[str, str]]  # the namespace and the name in it
    ignored: tuple[str, ...]  # what has no effect


class _Entry(NamedTuple):
    """A tool that the policy can call."""

    tool: Mapping[str, Any]
    namespace: str  # empty if it is in none
    field: str  # where it is in the request

    @property
    def name(self) -> str:
        return function_name(self.tool["name"], self.namespace)

    @property
    def is_custom(self) -> bool:
        return bool(self.tool["type"] == "custom")

    @property
    def has_grammar(self) -> bool:
        return self.is_custom and "definition" in (self.tool.get("format") or {})


def offered_tools(tools: Sequence[Mapping[str, Any]]) -> OfferedTools:
    """Read the tools of a request. Raises ApiError (400)."""
    entries = list(_entries(tools))
    return OfferedTools(
        functions=[_function(entry) for entry in entries],
        custom=frozenset(entry.name for entry in entries if entry.is_custom),
        namespaces=_namespaces(entries),
        ignored=tuple(_ignored(tools, entries)),
    )


def custom_input(arguments: str) -> tuple[str, bool]:
    """Return the text of a call of a custom tool, and whether it is all of the arguments."""
    try:
        asked = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments, True
    if isinstance(asked, dict) and len(asked) == 1 and isinstance(asked.get(TEXT), str):
        return asked[TEXT], False
    return arguments, True


def custom_arguments(text: str, item_id: str) -> str:
    """Return the arguments of a call that `custom_input` has read."""
    return text if item_id.startswith(RAW_PREFIX) else msgspec.json.encode({TEXT: text}).decode()


def function_name(name: str, namespace: object) -> str:
    """Return the name that the policy knows for a tool, which may be in a namespace."""
    if not isinstance(namespace, str) or not namespace:
        return name
    return f"{namespace.removesuffix(_SEPARATOR)}{_SEPARATOR}{name}"


def _entries(tools: Sequence[Mapping[str, Any]]) -> Iterator[_Entry]:
    for number, tool in enumerate(tools):
        field, kind = f"tools[{number}]", tool.get("type")
        if kind == "namespace":
            namespace = _name(tool, field)
            for index, inner in enumerate(_inner_tools(tool, field)):
                yield _entry(inner, namespace, f"{field}.tools[{index}]")
        elif kind not in _LEFT_OUT:
            yield _entry(tool, "", field)


def _inner_tools(namespace: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    inner = namespace.get("tools")
    if not isinstance(inner, list) or not all(isinstance(tool, dict) for tool in inner):
        raise bad_request(f"{field}.tools must be a list of tools.", param=f"{field}.tools")
    return inner


def _entry(tool: Mapping[str, Any], namespace: str, field: str) -> _Entry:
    kind, form = tool.get("type"), tool.get("format")
    if kind not in ("function", "custom"):
        raise _unsupported(
            field, f"{field} has the type {kind!r}; only 'function' and 'custom' tools are supported."
        )
    _name(tool, field)
    is_grammar = isinstance(form, dict) and isinstance(form.get("definition"), str)
    if kind == "custom" and not is_grammar and form not in (None, {"type": "text"}):
        raise _unsupported(
            f"{field}.format",
            f"{field}.format must be of type 'text', or of type 'grammar' with a definition.",
        )
    return _Entry(tool, namespace, field)


def _name(tool: Mapping[str, Any], field: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str):
        raise bad_request(f"{field} must have a name.", param=field)
    return name


def _function(entry: _Entry) -> dict[str, Any]:
    function: dict[str, Any] = {"name": entry.name}
    description = _description(entry)
    if description is not None:
        function["description"] = description
    if entry.tool.get("strict"):
        function["strict"] = True
    parameters = _PARAMETERS if entry.is_custom else entry.tool.get("parameters") or {}
    return {"type": "function", "function": function | {"parameters": parameters}}


def _description(entry: _Entry) -> Any:
    """Return the description of a tool. It includes a grammar, which the policy sees nowhere else."""
    description = entry.tool.get("description")
    if not entry.has_grammar:
        return description
    form = entry.tool["format"]
    grammar = f"The input follows this grammar ({form.get('syntax')}):\n{form['definition']}"
    return f"{description}\n\n{grammar}" if description else grammar


def _namespaces(entries: Sequence[_Entry]) -> dict[str, tuple[str, str]]:
    """Return the tools behind the names in namespaces. Raises ApiError (400) if one stands for two tools."""
    taken: set[str] = set()
    for entry in entries:
        if entry.namespace and entry.name in taken:
            raise bad_request(f"{entry.field} has the same name as another tool.", param=entry.field)
        taken.add(entry.name)
    return {entry.name: (entry.namespace, entry.tool["name"]) for entry in entries if entry.namespace}


def _ignored(tools: Sequence[Mapping[str, Any]], entries: Sequence[_Entry]) -> Iterator[str]:
    yield from dict.fromkeys(f"tools.{tool['type']}" for tool in tools if tool.get("type") in _LEFT_OUT)
    if any(tool.get("type") == "namespace" and tool.get("description") for tool in tools):
        yield "tools.description"
    if any(entry.has_grammar for entry in entries):
        yield "tools.format"


def _unsupported(field: str, message: str) -> ApiError:
    return bad_request(message, param=field, code="unsupported_parameter")
