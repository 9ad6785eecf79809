"""How values of a JSON schema may stand as plain text between tags, so that `typed_value` reads values that the schema
allows.

Strings stand without quotes, everything else as JSON. Where a text could be read as a value that the schema forbids,
the schema is refused.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.guidance.guide import InvalidGuideError
from seamlessflow.core.guidance.tagged_values import resolved, typed_value, value_types

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_MAX_DEPTH = 32
_STRUCTURES = ("object", "array")
_NUMBERS = ("integer", "number")
_OF_STRINGS = frozenset({"minLength", "maxLength", "pattern", "format"})
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds of a text's length, in characters."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class PlainValue:
    """A value is one of the literals, free text of these lengths, or JSON of the schema.

    If both free text and JSON are possible, all of the JSON are objects or arrays.
    """

    literals: tuple[str, ...] = ()
    text: Lengths | None = None
    json: Schema | None = None


def plain_value(schema: Any, root: Schema) -> PlainValue:
    """Return the forms of a property's values. Raises InvalidGuideError."""
    types = value_types(schema, root)
    if types and "string" not in types:
        return PlainValue(json=_with_definitions(schema, root))
    branches = list(_branches(schema, root, _MAX_DEPTH))
    literals = [value for branch in branches for value in _listed(branch)]
    texts = [_lengths(branch) for branch in branches if _is_text(branch)]
    others = [branch for branch in branches if not _is_text(branch) and not _is_listed(branch)]
    if texts:
        return _with_text(texts, literals, others, root)
    structures = [branch for branch in others if branch["type"] != "null"]
    if any(branch["type"] not in _STRUCTURES for branch in structures):
        raise InvalidGuideError("a choice of strings beside numbers or booleans cannot stand as plain text")
    written = [*map(_written, literals), *(["null"] if len(structures) < len(others) else [])]
    for value in literals:
        if typed_value(_written(value), schema, root) != value:
            raise InvalidGuideError(
                f"{value!r} cannot stand as plain text, because it would be read otherwise"
            )
    return PlainValue(literals=tuple(written), json=_any_of(structures, root))


def _with_text(texts: list[Lengths], literals: list[Any], others: list[Schema], root: Schema) -> PlainValue:
    """Free text beside other values: it may be read as null, a boolean or a number if any such value is allowed."""
    if len(texts) > 1:
        raise InvalidGuideError("several kinds of free text cannot be distinguished")
    structures = [branch for branch in others if branch["type"] in _STRUCTURES]
    scalars = [branch for branch in others if branch["type"] not in _STRUCTURES]
    is_number_beside_bounds = texts[0] != Lengths() and any(branch["type"] in _NUMBERS for branch in scalars)
    is_bounded = any(branch.keys() - _ANNOTATIONS - {"type"} for branch in scalars)
    if is_number_beside_bounds or is_bounded or not all(isinstance(value, str) for value in literals):
        raise InvalidGuideError("free text beside certain numbers or booleans cannot stand as plain text")
    names = {branch["type"] for branch in scalars}
    words = [*(["null"] if "null" in names else []), *(["true", "false"] if "boolean" in names else [])]
    return PlainValue(literals=(*literals, *words), text=texts[0], json=_any_of(structures, root))


def _branches(schema: Any, root: Schema, depth: int) -> Iterable[Schema]:
    """Yield schemas of one type each, which together accept the same values as the schema; one without a type is a
    string."""
    found = {} if schema is True else resolved(schema, root)
    if not isinstance(found, Mapping) or depth == 0:
        raise InvalidGuideError(f"a schema of a value must be an object, got {str(schema)[:60]!r}")
    for name in ("anyOf", "oneOf", "allOf"):
        choices = found.get(name)
        if isinstance(choices, list):
            if found.keys() - _ANNOTATIONS - {name} or (name == "allOf" and len(choices) != 1):
                raise InvalidGuideError(
                    f"{name} beside other keywords cannot be followed where strings are plain"
                )
            for choice in choices:
                yield from _branches(choice, root, depth - 1)
            return
    if _is_listed(found):
        yield found
        return
    types = found.get("type", "string")
    for kind in types if isinstance(types, list) else [types]:
        if not isinstance(kind, str):
            raise InvalidGuideError(f"type must be a name or names, got {str(types)[:60]!r}")
        yield {**_without_bounds_of_others(found, kind), "type": kind}


def _without_bounds_of_others(schema: Schema, kind: str) -> Schema:
    """Leave out the bounds of strings where another type is meant."""
    return {key: value for key, value in schema.items() if kind == "string" or key not in _OF_STRINGS}


def _is_listed(branch: Schema) -> bool:
    return "enum" in branch or "const" in branch


def _is_text(branch: Schema) -> bool:
    return not _is_listed(branch) and branch["type"] == "string"


def _listed(branch: Schema) -> list[Any]:
    if "const" in branch:
        return [branch["const"]]
    listed = branch.get("enum", [])
    if not isinstance(listed, list):
        raise InvalidGuideError(f"enum must be a list, got {str(listed)[:60]!r}")
    return listed


def _lengths(branch: Schema) -> Lengths:
    unknown = sorted(branch.keys() - _ANNOTATIONS - {"type", "minLength", "maxLength"})
    if unknown:
        raise InvalidGuideError(f"{unknown[0]} of a string cannot be followed where strings are plain text")
    least, most = branch.get("minLength", 0), branch.get("maxLength")
    if not isinstance(least, int) or not isinstance(most, int | None):
        raise InvalidGuideError("minLength and maxLength must be integers")
    return Lengths(least, most)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _any_of(branches: list[Schema], root: Schema) -> Schema | None:
    return _with_definitions({"anyOf": branches}, root) if branches else None


def _with_definitions(schema: Schema, root: Schema) -> Schema:
    """Return the schema as one that stands alone."""
    return {**{name: root[name] for name in ("$defs", "definitions") if name in root}, **schema}
