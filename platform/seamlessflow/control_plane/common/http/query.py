"""Query parameters, declared once: a serializer of them is published in OpenAPI, and requests are read by it.

Enters: the query of a request and its class. Leaves: each value by name; a parameter that was left out has its default.
Invariant: an unknown parameter, or a value that is not accepted, is refused by name (400), with the accepted ones.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.utils.dateparse import parse_datetime
from rest_framework import serializers

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.json_values import text_fault

YEARS = range(2000, 2200)
MAX_STORED = 2**62


class Query(serializers.Serializer):
    """The parameters of an address. One without parameters accepts none."""


def query_read(given: Mapping[str, str], kind: type[Query]) -> dict[str, Any]:
    """Return the validated values. Raises ApplicationError or DRF's ValidationError, each naming the parameter."""
    query = kind(data=given)
    for name, value in given.items():
        shown = name.replace("\x00", "\ufffd")
        if (fault := text_fault(value)) is not None:
            raise field_error(shown, fault)
        if name not in query.fields:
            known = ", ".join(sorted(query.fields)) or "none"
            raise field_error(shown, f"is not a parameter of this address; accepted: {known}")
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)


class _Parameter(serializers.Field):
    """A parameter that may be left out. `read` turns its text into a value; LookupError or ValueError refuse it."""

    accepted: str
    read: Callable[[str], Any]

    def __init__(self, help_text: str, *, default: Any = None, **options: Any) -> None:
        super().__init__(help_text=help_text, default=default, **options)

    def to_internal_value(self, text: str) -> Any:
        try:
            return self.read(text)
        except (LookupError, ValueError) as error:
            refusal = f"{text!r} is not accepted; accepted: {self.accepted}"
            raise serializers.ValidationError(refusal) from error


class TextParameter(_Parameter, serializers.CharField):
    def __init__(self, help_text: str, **options: Any) -> None:
        super().__init__(help_text, allow_blank=True, trim_whitespace=False, **options)

    def read(self, text: str) -> str:
        return text


class FlagParameter(_Parameter, serializers.BooleanField):
    accepted = "true, false"

    def read(self, text: str) -> bool:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


class WordParameter(_Parameter, serializers.ChoiceField):
    """A word of an enum."""

    def __init__(self, help_text: str, *, words: type[StrEnum], **options: Any) -> None:
        self.words = words
        self.accepted = ", ".join(words)
        super().__init__(help_text, choices=list(map(str, words)), **options)

    def read(self, text: str) -> StrEnum:
        return self.words(text)


class WordsParameter(TextParameter):
    """One or several words, separated by commas."""

    def __init__(self, help_text: str, *, words: Sequence[str], **options: Any) -> None:
        self.words = {str(word): word for word in words}
        self.accepted = ", ".join(self.words)
        super().__init__(f"{help_text}, separated by commas: {self.accepted}.", **options)

    def read(self, text: str) -> str:
        return self.words[text]

    def to_internal_value(self, text: str) -> list[str]:
        return list(map(super().to_internal_value, text.split(",")))


class IntegerParameter(_Parameter, serializers.IntegerField):
    """A whole number. `most` is None where every number that a column stores is accepted."""

    def __init__(self, help_text: str, *, least: int = 0, most: int | None = None, **options: Any) -> None:
        self.accepted = f"a whole number from {least} " + ("on" if most is None else f"to {most}")
        self._numbers = range(least, (MAX_STORED if most is None else most) + 1)
        super().__init__(help_text, min_value=least, max_value=most, **options)

    def read(self, text: str) -> int:
        number = int(text)
        if number not in self._numbers:
            raise ValueError(text)
        return number


class MomentParameter(_Parameter, serializers.DateTimeField):
    accepted = f"an RFC 3339 moment such as 2026-01-31T12:00:00Z, from the year {YEARS.start} on"

    def read(self, text: str) -> datetime:
        moment = parse_datetime(text.replace(" ", "+"))  # an unescaped '+' arrives as a space
        if moment is None or moment.tzinfo is None or moment.year not in YEARS:
            raise ValueError(text)
        return moment
