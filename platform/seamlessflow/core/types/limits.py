"""The limits of values that people write: one type a field word, from which every face of the platform derives.

Enters: nothing. Leaves: `Annotated` types that pydantic checks, and `limits_of`, which the REST fields, the command
line, the admin site and the exported `limits.schema.json` (the dashboard's constants) read. Invariant: no other module
writes one of these numbers or grammars. Nothing here imports pydantic, because the command line starts without it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, get_args

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Generic[Number]):
    """The keywords of pydantic's core schema; None: no limit of that kind. `accepted`: the pattern in words."""

    ge: Number | None = None
    le: Number | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    accepted: str = ""
    help: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Add the limits to the core schema of the annotated type; pydantic calls this."""
        named = {name: getattr(self, name) for name in ("ge", "le", "min_length", "max_length", "pattern")}
        return handler(source) | {name: limit for name, limit in named.items() if limit is not None}

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Callable[[Any], Any]) -> Any:
        """Add the words to the JSON Schema of the annotated type; pydantic calls this."""
        words = {"description": self.help, "x-accepted": self.accepted}
        return handler(core_schema) | {name: text for name, text in words.items() if text}

    @property
    def span(self) -> tuple[Number, Number]:
        """The least and the greatest number, of a type that has both."""
        assert self.ge is not None
        assert self.le is not None
        return self.ge, self.le

    def refusal(self, value: Any) -> str:
        """Return in one sentence why a text or a number is refused; "" if it is accepted. Not a number is refused."""
        if self.pattern is not None:
            is_fit = re.fullmatch(self.pattern, value) is not None
            return "" if is_fit else f"{value!r} is not accepted; accepted: {self.accepted or self.pattern}"
        if self.ge is None:
            return ""
        least, most = self.span
        return "" if least <= value <= most else f"{value:g} is not accepted; accepted: {least:g} to {most:g}"


Tag = Annotated[str, Limits(max_length=63, pattern=r"^[a-z0-9._=-]{1,63}$")]
MachineName = Annotated[
    str,
    Limits(
        max_length=63,
        pattern=r"^[a-z0-9](?:[a-z0-9.\-]{0,61}[a-z0-9])?$",
        accepted="1 to 63 of a-z, 0-9, '.' and '-', a letter or digit at both ends",
    ),
]
# Browsers read a pattern with the flag `v`, which wants the dash escaped.
PoolName = Annotated[
    str,
    Limits(
        max_length=63,
        pattern=r"^[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?$",
        accepted="1 to 63 of a-z, 0-9 and '-', a letter or digit at both ends",
        help="Only projects with a grant of the pool may use its machines (page Shares). "
        "The pool 'default' is open until it is granted.",
    ),
]
Cost = Annotated[
    float,
    Limits(
        ge=0.01,
        le=1000,
        help="What the machine counts in shares: 1 for an ordinary one, 2 for one worth two of them.",
    ),
]
Priority = Annotated[int, Limits(ge=-100, le=100)]
Weight = Annotated[float, Limits(ge=0.01, le=100)]
Quota = Annotated[int, Limits(ge=1, le=1_000_000)]
Reason = Annotated[str, Limits(max_length=1000)]
DisplayName = Annotated[str, Limits(min_length=1, max_length=120)]  # of a job or a token
UserName = Annotated[str, Limits(max_length=150)]


def limits_of(kind: Any) -> Limits[Any]:
    """Return the limits of one of these types.

    >>> limits_of(Priority).span
    (-100, 100)
    """
    limits: Limits[Any] = get_args(kind)[1]
    return limits
