"""Reads a process's settings from its environment, once, at start.

Takes variables, each with its default, its accepted values and its meaning; returns typed values. Invariants: a
variable that is missing or cannot be used is named with its value and the accepted ones, and the value of a secret is
never shown; an empty variable counts as a missing one. `docs/settings.md` is generated from the same variables.

pydantic-settings would read the values, but these messages name the accepted values and hide secrets. A limit that no
operator has needed to change is a constant, not a variable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast
from urllib.parse import urlsplit

T = TypeVar("T")
ACCEPTED_URL = "http://host[:port] or https://host[:port]"
MAX_DIGITS = 18


class InvalidSetting(ValueError):
    """An environment variable that is missing or cannot be used."""

    def __init__(self, name: str, value: str | None, accepted: str, *, is_secret: bool = False) -> None:
        shown = f"{len(value or '')} characters long" if is_secret else repr(value)
        got = "is not set" if value is None else f"is {shown}"
        super().__init__(f"{name} {got}; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """`parse` raises ValueError for a text that is not accepted. `default`: the text that is parsed if there is none;
    None if the variable must be set. `default_note`: the text of the documentation instead of the default."""

    name: str
    help: str
    accepted: str
    parse: Callable[[str], T]
    default: str | None = None
    default_note: str = ""
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads variables. With `faults`, every fault is collected there, to be checked at the end."""

    environ: Mapping[str, str]
    faults: list[str] | None = None

    def read(self, variable: Variable[T], *, default: str | None = None) -> T:
        """Return the value. Raises InvalidSetting, unless faults are collected."""
        text = self.environ.get(variable.name, "").strip()
        fallback = variable.default if default is None else default
        try:
            return variable.parse(text or self._present(variable, fallback))
        except ValueError as error:
            fault = error if isinstance(error, InvalidSetting) else refused(variable, text)
        if self.faults is None:
            raise fault
        self.faults.append(str(fault))
        # Reading goes on with the default; without one, with a value that is never used.
        return cast("T", "") if fallback is None else variable.parse(fallback)

    @staticmethod
    def _present(variable: Variable[T], fallback: str | None) -> str:
        if fallback is None:
            raise InvalidSetting(variable.name, None, variable.accepted)
        return fallback

    def has(self, variable: Variable[T]) -> bool:
        return bool(self.environ.get(variable.name, "").strip())


def refused(variable: Variable[T], text: str) -> InvalidSetting:
    return InvalidSetting(variable.name, text, variable.accepted, is_secret=variable.is_secret)


def text(
    name: str, help: str, *, accepted: str = "any text", default: str | None = None, default_note: str = ""
) -> Variable[str]:
    return Variable(name, help, accepted, str, default, default_note)


def secret(name: str, help: str, *, min_length: int, default_note: str = "") -> Variable[str]:
    def parse(value: str) -> str:
        if len(value) < min_length:
            raise ValueError
        return value

    accepted = f"at least {min_length} characters"
    return Variable(name, help, accepted, parse, default_note=default_note, is_secret=True)


def whole_number(
    name: str,
    help: str,
    *,
    default: int,
    minimum: int = 0,
    default_note: str = "",
) -> Variable[int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or len(value) > MAX_DIGITS or int(value) < minimum:
            raise ValueError
        return int(value)

    return Variable(name, help, f"a whole number from {minimum} on", parse, str(default), default_note)


def fraction(name: str, help: str, *, default: float) -> Variable[float]:
    def parse(value: str) -> float:
        if not 0 < float(value) <= 1:
            raise ValueError
        return float(value)

    return Variable(name, help, "a number above 0 and at most 1", parse, str(default))


def one_of(
    name: str, help: str, *, choices: tuple[str, ...], default: str, default_note: str = ""
) -> Variable[str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError
        return value

    return Variable(name, help, ", ".join(choices), parse, default, default_note)


def items(name: str, help: str) -> Variable[list[str]]:
    def parse(value: str) -> list[str]:
        return [item.strip() for item in value.split(",") if item.strip()]

    return Variable(name, help, "names joined by ','", parse, "", "none")


def http_url(name: str, help: str, *, default: str | None = None, default_note: str = "") -> Variable[str]:
    def parse(value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        return value.rstrip("/")

    return Variable(name, help, ACCEPTED_URL, parse, default, default_note)


def made_folder(name: str, path: Path) -> Path:
    """Create the folder `path`, which lies in the folder that the variable names."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            name, str(path), f"a folder this user may write in ({error.strerror})"
        ) from error
    return path
