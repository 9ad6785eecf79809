"""Identifiers: UUIDv7 values, shown to people as `job_01h…` (Crockford base32 with a kind prefix).

A UUIDv7 sorts by creation time, so primary keys stay local on disk. The caller supplies the clock
and the randomness; this module only packs bits.
"""

from enum import StrEnum
from uuid import UUID

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CHARACTERS = frozenset(_ALPHABET)
_TO_BASE_32 = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # Python's digits
_NUM_CHARACTERS = 26  # 26 × 5 bits are enough for 128 bits


class IdKind(StrEnum):
    """Prefix of a shown identifier."""

    PROJECT = "prj"
    USER = "usr"
    TOKEN = "tok"
    JOB = "job"
    MACHINE = "mac"
    PHASE = "pha"
    GROUP = "grp"
    SESSION = "ses"
    BATCH = "bat"
    VERSION = "ver"
    ARTIFACT = "art"


def uuid7(*, unix_ms: int, random_bytes: bytes) -> UUID:
    """Pack a UUIDv7 (RFC 9562) from milliseconds since the epoch and ten random bytes."""
    if len(random_bytes) != 10:
        raise ValueError(f"random_bytes must have 10 bytes, got {len(random_bytes)}")
    rand = int.from_bytes(random_bytes, "big")
    rand_a, rand_b = rand >> 68, rand & ((1 << 62) - 1)
    value = (unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    return UUID(int=value)


def show_id(kind: IdKind, value: UUID) -> str:
    """Render for people and URLs: `show_id(IdKind.JOB, …)` gives `job_` and 26 characters."""
    number = value.int
    characters = [_ALPHABET[(number >> 5 * i) & 31] for i in reversed(range(_NUM_CHARACTERS))]
    return f"{kind}_{''.join(characters)}"


def parse_id(kind: IdKind, text: str) -> UUID:
    """Invert `show_id`; accepts a plain UUID string too. Raises ValueError, which names the expected form."""
    prefix, separator, body = text.partition("_")
    if not separator:
        try:
            return UUID(text)
        except ValueError:
            raise ValueError(f"{text!r} is not an identifier of the form {kind}_…") from None
    if prefix != kind or len(body) != _NUM_CHARACTERS or not _CHARACTERS.issuperset(body):
        raise ValueError(f"{text!r} is not an identifier of the form {kind}_… (26 characters)")
    number = int(body.translate(_TO_BASE_32), 32)
    if number >= 1 << 128:
        raise ValueError(f"{text!r} is out of range for an identifier")
    return UUID(int=number)
