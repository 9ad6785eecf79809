"""A guide: the language that an answer must belong to, as a value that is recorded and compared by its digest.

A guide is made from what a client asked for, under the names of vLLM's `structured_outputs`. Its text is canonical: the
same request always gives the same bytes. The order of keys in a JSON schema is kept, because properties are generated
in that order. Nothing here knows tokens; `matching` turns a guide into masks.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

MAX_GUIDE_BYTES = 64 * 1024
MAX_CHOICES = 1024
# llguidance skips blanks without a bound unless all are forbidden. One blank may follow a comma or a colon, as chat
# templates write JSON; a weak policy would otherwise fill its whole answer with blanks.
JSON_FORM: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


class InvalidGuideError(ValueError):
    """No answer can be guided like this; the message says why in one sentence."""


class GuideKind(StrEnum):
    """The names of vLLM's fields in `structured_outputs`."""

    JSON = "json"  # the text is a JSON schema
    REGEX = "regex"
    GRAMMAR = "grammar"  # the text is a Lark grammar in llguidance's dialect
    CHOICE = "choice"  # the text is a JSON array of strings


@dataclass(frozen=True)
class Guide:
    """`end_token_ids` may follow a complete answer and end it; they belong to the guide because masks allow them."""

    kind: GuideKind
    text: str
    end_token_ids: tuple[int, ...]

    @property
    def wanted(self) -> dict[str, Any]:
        """Return the guide as `structured_outputs`."""
        return {self.kind.value: json.loads(self.text) if self.kind is GuideKind.CHOICE else self.text}

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of kind, text and end tokens, hex."""
        content = json.dumps([self.kind.value, self.text, list(self.end_token_ids)], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()


def guide_make(wanted: Mapping[str, Any], *, end_token_ids: Sequence[int]) -> Guide:
    """Make a guide from `structured_outputs`, which must name one kind. Raises InvalidGuideError."""
    given = {name: value for name, value in wanted.items() if value is not None}
    known = [kind.value for kind in GuideKind]
    if len(given) != 1 or not given.keys() <= set(known):
        raise InvalidGuideError(f"give exactly one of {', '.join(known)}, got {sorted(given)}")
    if not end_token_ids:
        raise InvalidGuideError("a guided answer needs an end-of-sequence or stop token to end with")
    ((name, value),) = given.items()
    kind = GuideKind(name)
    text = _canonical(kind, value)
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidGuideError(f"{kind} contains half of a surrogate pair, which no text does") from error
    if num_bytes > MAX_GUIDE_BYTES:
        raise InvalidGuideError(f"{kind} may have at most {MAX_GUIDE_BYTES} bytes, got {num_bytes}")
    return Guide(kind, text, tuple(sorted(set(end_token_ids))))


def literal_pattern(text: str) -> str:
    """Return a regular expression that matches exactly this text, as it may stand between slashes."""
    return "".join(char if char.isascii() and char.isalnum() else rf"\x{{{ord(char):x}}}" for char in text)


def _canonical(kind: GuideKind, value: object) -> str:
    match kind:
        case GuideKind.JSON:
            return _compact(_schema(value))
        case GuideKind.CHOICE:
            return _compact(_choices(value))
        case GuideKind.REGEX | GuideKind.GRAMMAR:
            if not isinstance(value, str) or not value:
                raise InvalidGuideError(f"{kind} must be a string that is not empty")
            return value


def _schema(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidGuideError(f"json must be a JSON schema: {error}") from error
    if not isinstance(value, Mapping):
        raise InvalidGuideError("json must be a JSON schema: an object, or the text of one")
    return value


def _choices(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise InvalidGuideError("choice must be a list of strings that are not empty")
    if len(value) > MAX_CHOICES:
        raise InvalidGuideError(f"choice may have at most {MAX_CHOICES} entries, got {len(value)}")
    return value


def _compact(value: object) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidGuideError(f"json must be a JSON schema: {error}") from error
