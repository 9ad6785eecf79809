"""Checks values to be stored as JSON. Takes a parsed one; raises a fault that names the path, or returns nothing."""

import math
from collections.abc import Iterator

from seamlessflow.control_plane.common.errors import field_error

MAX_DEPTH = 32
MAX_INTEGER = 2**63


def json_check(value: object) -> None:
    """Refuse what JSON or PostgreSQL cannot store. Raises ApplicationError naming the field."""
    pending: list[tuple[str, object, int]] = [("", value, 0)]
    while pending:
        path, item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise field_error(path, f"is nested deeper than the {MAX_DEPTH} levels accepted")
        fault = _fault(item)
        if fault is not None:
            raise field_error(path, fault)
        pending += [(f"{path}.{key}".lstrip("."), member, depth + 1) for key, member in _members(path, item)]


def text_fault(text: str) -> str | None:
    """Say why PostgreSQL cannot store a text; None if it can."""
    if "\x00" in text:
        return f"{text!r} contains a NUL character, which no field accepts"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{text!r} contains half of a surrogate pair, which is not a character"
    return None


def _fault(item: object) -> str | None:
    if item is None or isinstance(item, bool | list | dict):
        return None
    if isinstance(item, str):
        return text_fault(item)
    if isinstance(item, int):
        return None if abs(item) < MAX_INTEGER else "does not fit into the 64 bits accepted"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{item} is not accepted; accepted: finite numbers"
    return f"{item!r} is a {type(item).__name__}; accepted: text, numbers, true, false, null, lists, mappings"


def _members(path: str, item: object) -> Iterator[tuple[str, object]]:
    if isinstance(item, list):
        yield from ((str(index), member) for index, member in enumerate(item))
    elif isinstance(item, dict):
        for key, member in item.items():
            fault = text_fault(key) if isinstance(key, str) else f"the key {key!r} is not a text"
            if fault is not None:
                raise field_error(path, fault)
            yield key, member
