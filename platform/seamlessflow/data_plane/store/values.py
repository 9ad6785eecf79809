"""How values are written for PostgreSQL: token arrays as compressed bytes in rows, states as literals in statements.

A statement names a state literally if its plan depends on it (partial indices) or if it compares several states.
Invariant: only members of enums become literals, never a caller's text.
"""

import re
from enum import StrEnum

import zstandard

LEVEL = 3
_compressor = zstandard.ZstdCompressor(level=LEVEL)
_decompressor = zstandard.ZstdDecompressor()
_WORD = re.compile(r"[a-z_]+")


def packed(raw: bytes) -> bytes:
    """Return packed little-endian bytes, compressed with zstd, as rows hold them."""
    return _compressor.compress(raw)


def unpacked(stored: bytes) -> bytes:
    return _decompressor.decompress(stored)


def sql_literal(member: StrEnum) -> str:
    """Return `'open'` for `GroupState.OPEN`. Raises ValueError for a value that is not one lower-case word."""
    # Callers without a type checker may pass plain text.
    if not (issubclass(type(member), StrEnum) and _WORD.fullmatch(member)):
        raise ValueError(
            f"{member!r} is not a member of an enum of states: it cannot be put into a statement"
        )
    return f"'{member.value}'"
