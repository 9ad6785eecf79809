"""The demands of clients on an answer, for all dialects: content of a schema, forced tool calls, strict tools.

Tools come in the form of chat. A demand that only makes tools strict is soft: where it cannot be met, the answer goes
without it and its field is named as ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.guidance.answer_grammar import CallableTool, ToolDemand
from seamlessflow.data_plane.errors import bad_request

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
STRICT_FIELD = "tools.strict"


def content_demand(form: Mapping[str, Any] | None, field: str, *, has_wrapper: bool) -> ToolDemand | None:
    """Return the demand of a `response_format`, or of another API's field of the same kind. Raises ApiError (400).

    With `has_wrapper` the schema stands in a member `json_schema`, as in chat.
    """
    kind = None if form is None else form.get("type")
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return ToolDemand(field, schema=ANY_OBJECT)
    if kind != "json_schema":
        raise bad_request(
            f"{field}.type must be text, json_object or json_schema, got {kind!r}.", param=field
        )
    inside = f"{field}.json_schema" if has_wrapper else field
    content = form.get("json_schema") if has_wrapper else form
    schema = content.get("schema") if isinstance(content, Mapping) else None
    if not isinstance(schema, Mapping):
        raise bad_request(f"{inside}.schema must be a JSON schema, an object.", param=f"{inside}.schema")
    return ToolDemand(f"{inside}.schema", schema=schema)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools an answer must call: none of them (`is_forced` is false), any, or the tool `name`."""

    field: str  # of the client's request
    is_forced: bool = False
    name: str | None = None
    is_parallel: bool = True


def answer_demand(
    content: ToolDemand | None, tools: Sequence[Mapping[str, Any]] | None, choice: ToolChoice
) -> ToolDemand | None:
    """Return the one demand of a request; `tools` is None if none may be called. Raises ApiError (400)."""
    if choice.is_forced:
        return _forced(tools or (), choice)  # such an answer has no content
    is_strict = any(_function(tool).get("strict") for tool in tools or ())
    if not tools or (content is None and not is_strict):
        return content
    return ToolDemand(
        STRICT_FIELD if content is None else content.field,
        schema=None if content is None else content.schema,
        tools=_callable(tools, is_strict_only=True),
        is_parallel=choice.is_parallel,
        may_answer=True,
    )


def is_soft(demand: ToolDemand) -> bool:
    """Return whether the demand only makes tools strict."""
    return demand.field == STRICT_FIELD


def _forced(tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> ToolDemand:
    field, known = choice.field, _callable(tools, is_strict_only=False)
    if not known:
        raise bad_request(f"{field} forces a tool call, but there are no tools.", param=field)
    chosen = [tool for tool in known if choice.name in (None, tool.name)]
    if not chosen:
        names = ", ".join(tool.name for tool in known)
        raise bad_request(f"{field} names the tool {choice.name!r}; the tools are {names}.", param=field)
    return ToolDemand(field, tools=chosen, is_parallel=choice.is_parallel and choice.name is None)


def _callable(tools: Sequence[Mapping[str, Any]], *, is_strict_only: bool) -> list[CallableTool]:
    return [
        CallableTool(_name(function, number), _parameters(function, is_strict_only=is_strict_only))
        for number, function in enumerate(map(_function, tools))
    ]


def _name(function: Mapping[str, Any], number: int) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request(f"tools[{number}] must be a function with a name.", param=f"tools[{number}]")
    return name


def _parameters(function: Mapping[str, Any], *, is_strict_only: bool) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping) or (is_strict_only and not function.get("strict")):
        return {}
    return parameters


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else {}
