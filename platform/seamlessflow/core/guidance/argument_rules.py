"""Grammar rules of the arguments of one tool: JSON of its schema, or values between tags.

Tagged arguments come in the order of the schema's properties; those that are not required may be left out. A tool whose
schema has no `properties` may have any arguments.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.core.guidance.call_forms import Element, Mark, Pattern, TaggedArguments, Text
from seamlessflow.core.guidance.guide import JSON_FORM, InvalidGuideError, literal_pattern
from seamlessflow.core.guidance.plain_values import Lengths, PlainValue, plain_value
from seamlessflow.core.guidance.tagged_values import resolved

_PROPERTY_NAME = re.compile(r"[^\s<>]+( +[^\s<>]+)*")
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "title", "description"}
    | {"$schema", "$id", "$comment", "default", "examples", "deprecated"}
)
_ANY_NAME = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
Named = Callable[[str], str]  # a mark as it stands in a grammar


def json_text(schema: Mapping[str, Any]) -> str:
    return json.dumps(dict(schema) | {"x-guidance": JSON_FORM})


def json_rules(rule: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    yield f"{rule}: %json {json_text({'type': 'object'} | dict(parameters))}"


def tagged_rules(
    rule: str, parameters: Mapping[str, Any], form: TaggedArguments, named: Named
) -> Iterator[str]:
    """Yield the rule and those that it needs. Raises InvalidGuideError if the schema cannot be followed."""
    root = resolved(parameters, parameters)
    if not isinstance(root, Mapping):
        raise InvalidGuideError("the parameters of a tool must be an object")
    root = {**{name: parameters[name] for name in ("$defs", "definitions") if name in parameters}, **root}
    properties, required = _properties(root)
    if not properties:
        is_any = "properties" not in root and root.get("additionalProperties", True) in (True, {})
        yield f"{rule}: {rule}_any*" if is_any else f'{rule}: ""'
        if is_any:
            yield from _tagged(f"{rule}_any", _ANY_NAME, PlainValue(text=Lengths()), form, named)
        return
    uses = []
    for number, (name, schema) in enumerate(properties.items()):
        argument = f"{rule}_{number}"
        uses.append(argument if name in required else f"{argument}?")
        try:
            written = json.dumps(name, ensure_ascii=False)
            yield from _tagged(argument, written, plain_value(schema, root), form, named)
        except InvalidGuideError as error:
            raise InvalidGuideError(f"parameter {name}: {error}") from error
    yield f"{rule}: {' '.join(uses)}"


def _properties(root: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the schemas of the properties, and which of them are required."""
    unknown = sorted(root.keys() - _KNOWN)
    if unknown or root.get("type", "object") != "object":
        what = unknown[0] if unknown else "type"
        raise InvalidGuideError(f"{what} of a tool's parameters cannot be followed by this model's family")
    properties, required = root.get("properties", {}), root.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise InvalidGuideError("properties must be an object, and required a list")
    for name in (*properties, *required):
        if not isinstance(name, str) or not _PROPERTY_NAME.fullmatch(name):
            raise InvalidGuideError(
                f"a parameter of this model may have no '<', '>' and line breaks: {name!r}"
            )
    return {**properties, **{name: {} for name in required if name not in properties}}, required


def _tagged(rule: str, name: str, value: PlainValue, form: TaggedArguments, named: Named) -> Iterator[str]:
    """Yield the rule of an argument whose name is written like `name`.

    The text of a value and the tag behind it are one terminal, because a lexer does not go back to where a text that
    might have gone on could have ended. A tag that is a special token ends the text by itself.
    """
    opens, names = (_written(elements, named) for elements in (form.opens, form.names))
    first, rest = _written(form.closes[:1], named), _written(form.closes[1:], named)
    terminal = f"V_{rule.upper()}"
    ways = []
    if value.json is not None:
        ways.append(f"{rule}_json {first}")
        yield f"{rule}_json: %json {json_text(value.json)}"
    if pattern := _pattern(value, form.excluded):
        is_text = first.startswith('"')
        ways.append(terminal if is_text else f"{terminal} {first}")
        yield f"{terminal}: ({pattern}) {first if is_text else ''}"
    yield f"{rule}: {opens} {name} {names} ({' | '.join(ways)}) {rest}"


def _pattern(value: PlainValue, excluded: Sequence[str]) -> str:
    """Return a regular expression of the literals and the free text; "" if there are none."""
    for literal in value.literals:
        if any(mark in literal for mark in excluded):
            raise InvalidGuideError(f"{literal!r} contains a mark of the model's calls")
    ways = [f"/{literal_pattern(literal)}/" for literal in value.literals]
    if value.text is not None:
        marks = "|".join(map(literal_pattern, excluded))
        most = "" if value.text.most is None else value.text.most
        text = rf"/(.|\n){{{value.text.least},{most}}}/ & ~/(.|\n)*({marks})(.|\n)*/"
        ways.append(text if value.json is None else rf"({text} & ~/\s*[\[{{](.|\n)*/)")
    return " | ".join(ways)


def _written(elements: Sequence[Element], named: Named) -> str:
    return " ".join(element_text(element, named) for element in elements)


def element_text(element: Element, named: Named) -> str:
    """Return an element as it stands in a grammar; arguments stand elsewhere."""
    match element:
        case Mark():
            return named(element.text)
        case Text():
            return json.dumps(element.text, ensure_ascii=False)
        case Pattern():
            return element.text
        case _:
            return ""
