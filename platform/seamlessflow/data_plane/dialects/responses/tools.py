"""Custom tools: to the policy, a function with one text argument; to the client, a call with a text.

A policy may call a custom tool with other arguments. Its text is then all of the arguments, and the item's id says so
(`RAW_PREFIX`), so that the call joins its tree when it is handed back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seamlessflow.data_plane.errors import ApiError, bad_request

TEXT = "input"  # the argument of a custom tool
RAW_PREFIX = "ctcr_"
CUSTOM_PREFIX = "ctc_"
_PARAMETERS = {"type": "object", "properties": {TEXT: {"type": "string"}}, "required": [TEXT]}


def chat_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Return the tools in the form of chat, and the names of the custom ones. Raises ApiError (400)."""
    described = [_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)]
    return described, frozenset(tool["name"] for tool in tools if tool["type"] == "custom")


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


def _tool(tool: Mapping[str, Any], field: str) -> dict[str, Any]:
    kind, name = tool.get("type"), tool.get("name")
    if kind not in ("function", "custom"):
        raise _unsupported(
            field, f"{field} has the type {kind!r}; only 'function' and 'custom' tools are supported."
        )
    if not isinstance(name, str):
        raise bad_request(f"{field} must have a name.", param=field)
    form = tool.get("format") or {"type": "text"}
    if kind == "custom" and form != {"type": "text"}:
        raise _unsupported(
            f"{field}.format", f"{field}.format must be of type 'text': a grammar is not supported."
        )
    function: dict[str, Any] = {"name": name}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    if tool.get("strict"):
        function["strict"] = True
    parameters = _PARAMETERS if kind == "custom" else tool.get("parameters") or {}
    return {"type": "function", "function": function | {"parameters": parameters}}


def _unsupported(field: str, message: str) -> ApiError:
    return bad_request(message, param=field, code="unsupported_parameter")
