"""How plain text becomes a value of a schema."""

from typing import Any

import pytest

from seamlessflow.core.guidance.tagged_values import typed_value, value_types


@pytest.mark.parametrize(
    "text,schema,value",
    [
        ("3", {"type": "integer"}, 3),
        ("3", {"type": "string"}, "3"),
        ("3", None, "3"),
        ("3.5", {"type": "integer"}, "3.5"),
        ("3.5", {"type": ["number", "null"]}, 3.5),
        ("True", {"type": "boolean"}, True),
        ("true", {"type": "integer"}, "true"),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("{oops", {"type": "object"}, "{oops"),
        ("null", {"type": "integer"}, None),
        ("null", {"type": "string"}, "null"),
        ("None", {"type": ["string", "null"]}, "None"),
        ("['a', 1, True, None]", {"type": "array"}, ["a", 1, True, None]),
        ("{'a': {'b': [1]}}", {"type": "object"}, {"a": {"b": [1]}}),
        ("['a']", {"type": "object"}, "['a']"),
        ("[(1, 2)]", {"type": "array"}, "[(1, 2)]"),
        ("[{1, 2}, b'x']", {"type": "array"}, "[{1, 2}, b'x']"),
        ("[1e999]", {"type": "array"}, "[1e999]"),
        ("[f()]", {"type": "array"}, "[f()]"),
        ("[" * 3000, {"type": "array"}, "[" * 3000),
    ],
)
def test_a_value_gets_the_type_of_its_schema(text: str, schema: Any, value: Any) -> None:
    assert typed_value(text, schema) == value
    assert type(typed_value(text, schema)) is type(value)


def test_types_are_found_behind_references_and_in_listed_values() -> None:
    root: dict[str, Any] = {
        "$defs": {
            "small/one": {"type": "integer"},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/small~1one"}]},
        }
    }
    assert typed_value("3", {"$ref": "#/$defs/loop"}, root) == 3
    assert typed_value("3", {"$ref": "elsewhere"}, root) == "3"
    assert value_types({"enum": ["a", 1, None]}, root) == {"string", "integer", "null"}
    assert value_types({"const": True}, root) == {"boolean"}
