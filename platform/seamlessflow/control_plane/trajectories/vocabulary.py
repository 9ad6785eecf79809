"""Reads the bytes that each token of a model stands for, from the `tokenizer.json` in its folder.

Takes the folder; returns one byte string per token id. The concatenated pieces of an answer are its text, so a browser
shows tokens without a tokenizer. Byte-level vocabularies (GPT-2 and its heirs) write a byte as a printable character;
those of SentencePiece write a space as `▁` and a lone byte as `<0x0A>`. Raises VocabularyUnreadable.
"""

import functools
import re
from pathlib import Path
from typing import Any

import orjson

MAX_TOKENS = 2_000_000
_LONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class VocabularyUnreadable(ValueError):
    """The folder has no tokenizer.json, or one of an unsupported kind."""


def vocabulary_read(folder: str) -> tuple[bytes, ...]:
    """Return pieces by token id, empty for an id without a token. Cached until the file changes."""
    path = Path(folder) / "tokenizer.json"
    try:
        return _vocabulary(path, path.stat().st_mtime_ns)
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise VocabularyUnreadable(f"the vocabulary of the job's model cannot be read: {error}") from error


@functools.lru_cache(maxsize=8)
def _vocabulary(path: Path, mtime_ns: int) -> tuple[bytes, ...]:
    content = orjson.loads(path.read_bytes())
    tokens = _tokens(content["model"])
    is_byte_level = "ByteLevel" in _decoder_types(content.get("decoder"))
    pieces = {
        number: _byte_level(token) if is_byte_level else _sentence_piece(token)
        for token, number in tokens.items()
    }
    added = {entry["id"]: entry["content"].encode() for entry in content.get("added_tokens", [])}
    pieces |= added
    num_tokens = max(pieces, default=-1) + 1
    if num_tokens > MAX_TOKENS:
        raise ValueError(f"token id {num_tokens - 1} is beyond {MAX_TOKENS}")
    return tuple(pieces.get(number, b"") for number in range(num_tokens))


def _tokens(model: dict[str, Any]) -> dict[str, int]:
    """Return ids by token. BPE and WordPiece store them so; Unigram lists tokens with their scores."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {entry[0]: number for number, entry in enumerate(vocabulary)}
    return dict(vocabulary)


def _decoder_types(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    return {decoder["type"]}.union(*(_decoder_types(inner) for inner in decoder.get("decoders", [])))


def _byte_level(token: str) -> bytes:
    """Decode a byte-level token. One with characters outside the alphabet was added as plain text."""
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def _sentence_piece(token: str) -> bytes:
    lone = _LONE_BYTE.fullmatch(token)
    return bytes([int(lone[1], 16)]) if lone else token.replace("▁", " ").encode()


def _alphabet() -> dict[str, int]:
    """Return GPT-2's alphabet: printable bytes stand for themselves, the others follow from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_ALPHABET = _alphabet()
