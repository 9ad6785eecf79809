"""Writes states into the text of statements.

`sql_literal` takes a member of an enum of `core` and returns its quoted value, for statements whose plans depend on
the value (partial indices) or that compare several. Invariant: only members of enums get in, never a caller's text.
"""

import re
from enum import StrEnum

_WORD = re.compile(r"[a-z_]+")


def sql_literal(member: StrEnum) -> str:
    """Return `'open'` for `GroupState.OPEN`. Raises ValueError for a value that is not one lower-case word."""
    # Callers that no type checker saw may bring plain text.
    if not (issubclass(type(member), StrEnum) and _WORD.fullmatch(member)):
        raise ValueError(f"{member!r} is no state: it cannot stand in the text of a statement")
    return f"'{member.value}'"
