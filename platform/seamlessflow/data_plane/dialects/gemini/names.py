"""Field names as Google's JSON writes them, from requests that write them in snake case."""

from collections.abc import Mapping
from typing import Any


def camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields under their names in camel case; their values are left as they are."""
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
