"""Values of tagged arguments, which stand as plain text between tags: their JSON types, and how a text is read.

The tool's schema says which values are numbers, booleans or structures; without a type, a value is text. Parsers of
calls read with `typed_value`, and grammars of calls write values that it can read.
"""

import ast
from collections.abc import Mapping
from typing import Any

import msgspec

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
}
_EXACT = 1 << 53  # up to here every integer is a number of its own
_MAX_LITERAL = 4096  # characters of a list or dictionary that is written as Python writes it
_MAX_REFERENCES = 16  # that refer to one another


def typed_value(text: str, schema: Any, root: Mapping[str, Any] | None = None) -> Any:
    """Return the value that `text` stands for under a JSON schema; the text itself if it does not fit, or without one.

    `root` is the schema of all arguments, in which references are looked up. Example: "3" is 3 under
    {"type": "integer"}, as is "3.0", and "3" under {"type": "string"} or {}.
    """
    types = value_types(schema, root or {})
    if not types:
        return text
    word = text.strip()
    if "boolean" in types and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word in ("null", "None") and "string" not in types:
        return None
    try:
        value = msgspec.json.decode(word)
    except (msgspec.DecodeError, RecursionError):
        return _python_value(word, types, text)
    if isinstance(value, float) and "integer" in types and "number" not in types:
        return int(value) if value.is_integer() and abs(value) < _EXACT else text
    accepted = tuple(kind for name in types for kind in _JSON_TYPES.get(name, ()))
    is_boolean_as_number = isinstance(value, bool) and "boolean" not in types
    return value if isinstance(value, accepted) and not is_boolean_as_number else text


def _python_value(word: str, types: set[str], text: str) -> Any:
    """Return a list or dictionary that a model wrote as Python does, with single quotes; else the text."""
    if {"[": "array", "{": "object"}.get(word[:1]) not in types or len(word) > _MAX_LITERAL:
        return text
    try:
        value = ast.literal_eval(word)
        is_json = msgspec.json.decode(msgspec.json.encode(value)) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if is_json else text


def value_types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the names of the JSON types that a schema accepts; none if it does not say."""
    return _types(schema, root, set())


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema that a reference refers to, or the schema itself; None if there is no such schema."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        schema = _referred(schema["$ref"], root)
    return None


def _types(schema: Any, root: Mapping[str, Any], seen: set[str]) -> set[str]:
    """Each reference is followed once, so that a small schema cannot become a large one."""
    if not isinstance(schema, Mapping):
        return set()
    types = _own_types(schema)
    for choices in ("anyOf", "oneOf", "allOf"):
        listed = schema.get(choices)
        for choice in listed if isinstance(listed, list) else ():
            types |= _types(choice, root, seen)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        types |= _types(_referred(reference, root), root, seen)
    return types


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {name for name in named if isinstance(name, str)}
    listed = schema.get("enum")
    values = [
        *(listed if isinstance(listed, list) else ()),
        *([schema["const"]] if "const" in schema else ()),
    ]
    return {_NAMES[type(value)] for value in values if type(value) in _NAMES}


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    """Follow a JSON pointer within the root, such as "#/$defs/small"; None if it leads elsewhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(found, Mapping):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found
