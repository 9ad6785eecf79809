"""The limits of values that people write: one type a field word, from which every face of the platform derives.

Enters: nothing. Leaves: `Annotated` types that pydantic checks, and `limits_of`, which the REST fields, the command
line, the admin site and the exported `limits.schema.json` (the dashboard's constants) read. Invariant: no other module
writes one of these numbers or grammars. Nothing here imports pydantic, because the command line starts without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, get_args

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Generic[Number]):
    """The keywords of pydantic's core schema; None: no limit of that kind."""

    ge: Number | None = None
    le: Number | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Add the limits to the core schema of the annotated type; pydantic calls this."""
        named = {name: getattr(self, name) for name in ("ge", "le", "min_length", "max_length", "pattern")}
        return handler(source) | {name: limit for name, limit in named.items() if limit is not None}

    @property
    def span(self) -> tuple[Number, Number]:
        """The least and the greatest number, of a type that has both."""
        assert self.ge is not None
        assert self.le is not None
        return self.ge, self.le

    def refusal(self, number: Number) -> str:
        """Return in one sentence why a number is refused; "" if it is accepted. Not a number is refused."""
        least, most = self.span
        return (
            "" if least <= number <= most else f"{number:g} is not accepted; accepted: {least:g} to {most:g}"
        )


Tag = Annotated[str, Limits(max_length=63, pattern=r"^[a-z0-9._=-]{1,63}$")]
MachineName = Annotated[str, Limits(max_length=63, pattern=r"^[a-z0-9](?:[a-z0-9.\-]{0,61}[a-z0-9])?$")]
# Browsers read a pattern with the flag `v`, which wants the dash escaped.
PoolName = Annotated[str, Limits(max_length=63, pattern=r"^[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?$")]
Cost = Annotated[float, Limits(ge=0.01, le=1000)]
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
