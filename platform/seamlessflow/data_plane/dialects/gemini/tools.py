"""The tools of a request to Google's API as functions in the form of chat, and which of them an answer must call.

Tools that Google runs and that agents offer unasked (search, pages) are left out and named as ignored; others are
refused, because a client that asks for them expects their results.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.data_plane.dialects.demands import ToolChoice
from seamlessflow.data_plane.dialects.gemini.names import camel
from seamlessflow.data_plane.dialects.gemini.schemas import json_schema
from seamlessflow.data_plane.errors import bad_request

MODE_FIELD = "toolConfig.functionCallingConfig"
_LEFT_OUT = ("googleSearch", "googleSearchRetrieval", "urlContext")
_MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
Function = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """`functions`: all; `callable`: those that this answer may call, None if none. `ignored`: tools left out."""

    functions: list[Function]
    callable: list[Function] | None
    choice: ToolChoice
    ignored: tuple[str, ...]


def offered_tools(tools: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None) -> OfferedTools:
    """Read tools and `toolConfig`. Raises ApiError (400)."""
    ignored: list[str] = []
    functions = list(_functions(tools, ignored))
    calling = camel(config or {}).get("functionCallingConfig") or {}
    calling = camel(calling) if isinstance(calling, Mapping) else {}
    mode = str(calling.get("mode") or "AUTO").upper()
    if mode not in _MODES:
        raise bad_request(
            f"{MODE_FIELD}.mode must be AUTO, ANY, NONE or VALIDATED, got {mode!r}.", param=MODE_FIELD
        )
    names = calling.get("allowedFunctionNames") or []
    allowed = _allowed(functions, names) if mode in ("ANY", "VALIDATED") else functions
    if mode == "VALIDATED":
        allowed = [{**tool, "function": tool["function"] | {"strict": True}} for tool in allowed]
    may_call = bool(functions) and mode != "NONE"
    return OfferedTools(
        functions=functions,
        callable=allowed if may_call or mode == "ANY" else None,
        choice=ToolChoice(MODE_FIELD, is_forced=mode == "ANY"),
        ignored=tuple(dict.fromkeys(ignored)),
    )


def _allowed(functions: list[Function], names: Sequence[str]) -> list[Function]:
    known = {tool["function"]["name"]: tool for tool in functions}
    for name in names:
        if name not in known:
            raise bad_request(
                f"{MODE_FIELD}.allowedFunctionNames has {name!r}; the functions are {', '.join(known)}.",
                param=f"{MODE_FIELD}.allowedFunctionNames",
            )
    return [known[name] for name in names] or functions


def _functions(tools: Sequence[Mapping[str, Any]], ignored: list[str]) -> Iterator[Function]:
    for number, tool in enumerate(tools):
        field = f"tools[{number}]"
        for kind, value in camel(tool).items():
            if kind in _LEFT_OUT:
                ignored.append(f"tools.{kind}")
            elif kind == "functionDeclarations" and isinstance(value, list):
                for index, declared in enumerate(value):
                    yield _function(declared, f"{field}.functionDeclarations[{index}]")
            elif value is not None:
                raise bad_request(
                    f"{field} has {kind}; only functionDeclarations are supported.",
                    param=field,
                    code="unsupported_parameter",
                )


def _function(declared: Any, field: str) -> Function:
    fields = camel(declared) if isinstance(declared, Mapping) else {}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request(f"{field} must have a name.", param=field)
    function: dict[str, Any] = {"name": name}
    if isinstance(fields.get("description"), str):
        function["description"] = fields["description"]
    parameters = fields.get("parametersJsonSchema")
    if parameters is None and fields.get("parameters"):
        parameters = schema_read(fields["parameters"], f"{field}.parameters")
    return {
        "type": "function",
        "function": function | {"parameters": parameters or {"type": "object", "properties": {}}},
    }


def schema_read(schema: Any, field: str) -> dict[str, Any]:
    """Read a schema of Google's. Raises ApiError (400)."""
    try:
        return json_schema(schema)
    except (ValueError, TypeError, AttributeError) as error:
        raise bad_request(f"{field} is not a schema: {error}.", param=field) from error
