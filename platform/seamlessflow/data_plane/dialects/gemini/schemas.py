"""JSON schemas from the schemas of Google's API, which write types in capitals and write `nullable`.

An object has no other members than its properties, in the order of `propertyOrdering` if that is given. Numbers may be
written as text, and formats that only name a width (`int32`, `double`) or repeat the type (`enum`) have no effect.
"""

from collections.abc import Mapping
from typing import Any

_LIMITS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_KEPT = ("description", "enum", "required", "minimum", "maximum", "pattern", "title", "default")
_FORMATS = ("date-time", "date", "time", "duration", "uuid")


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema that accepts the same values. Raises ValueError for anything else."""
    found: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    kind = schema.get("type")
    if isinstance(kind, str) and kind.upper() != "TYPE_UNSPECIFIED":
        found["type"] = kind.lower()
    if schema.get("format") in _FORMATS:
        found["format"] = schema["format"]
    found |= {name: int(schema[name]) for name in _LIMITS if name in schema}
    if "items" in schema:
        found["items"] = json_schema(_mapping(schema["items"]))
    for choices in ("anyOf", "any_of"):
        if choices in schema:
            found["anyOf"] = [json_schema(_mapping(one)) for one in schema[choices]]
    if "properties" in schema:
        found |= _object(schema)
    return _nullable(found) if schema.get("nullable") else found


def _object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = _mapping(schema["properties"])
    order = schema.get("propertyOrdering") or schema.get("property_ordering") or ()
    names = [name for name in order if name in properties]
    names += [name for name in properties if name not in names]
    inner = {name: json_schema(_mapping(properties[name])) for name in names}
    return {"type": "object", "properties": inner, "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a schema must be an object, got {value!r}")
    return value
