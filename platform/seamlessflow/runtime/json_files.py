"""Reads users' JSON files within bounds.

A parsed value takes up to thirty times the memory of its text, so the values are counted in the text before it is
parsed. Invariant: a file beyond its bounds is never parsed, and one beyond its size is never read whole. NaN and
Infinity are read, as Python's own reader does: configs of Mamba models have them.
"""

import json
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class JsonBounds:
    max_bytes: int
    max_values: int  # about the number of members of lists and mappings


CONFIG_BOUNDS = JsonBounds(max_bytes=16 * 1024**2, max_values=500_000)
# The largest vocabularies in use (262,000 tokens with 580,000 merges) take 33 MB and 3 million values.
TOKENIZER_BOUNDS = JsonBounds(max_bytes=64 * 1024**2, max_values=4_000_000)


class InvalidJsonFile(ValueError):
    """The file is not JSON, or exceeds its bounds."""


def json_file_read(path: Path, bounds: JsonBounds) -> Any:
    """Read and parse a file. Raises OSError and InvalidJsonFile."""
    with path.open("rb") as file:
        text = file.read(bounds.max_bytes + 1)
    return json_text_read(text, bounds)


def json_text_read(text: bytes, bounds: JsonBounds) -> Any:
    """Parse a text. Raises InvalidJsonFile."""
    if len(text) > bounds.max_bytes:
        raise InvalidJsonFile(f"it has more than the {bounds.max_bytes} bytes accepted")
    if sum(map(text.count, (b",", b"[", b"{"))) > bounds.max_values:
        raise InvalidJsonFile(f"it has more than the {bounds.max_values} values accepted")
    if text.startswith(BOM_UTF8):
        raise InvalidJsonFile(
            "it begins with a byte order mark, which JSON must not have; save it as UTF-8 without"
        )
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:  # of msgspec, and of texts that are not UTF-8
        return _with_constants(text, error)


def _with_constants(text: bytes, error: Exception) -> Any:
    """Parse a text that has constants which JSON lacks. Raises InvalidJsonFile if they are not the fault."""
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        raise InvalidJsonFile(str(error)) from error
