"""Reads the bytes of each token of a model, from the `tokenizer.json` in its folder.

Takes the folder and returns one byte string per token id. The concatenated strings of an answer are its text, so a
browser can show tokens without a tokenizer. Byte-level vocabularies (GPT-2 and its successors) write a byte as a
printable character; SentencePiece vocabularies write a space as `▁` and a single byte as `<0x0A>`.
"""

import functools
import re
from pathlib import Path
from typing import Any

import orjson

MAX_TOKENS = 2_000_000
_LONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class VocabularyUnreadable(ValueError):
    """The folder has no tokenizer.json, or an unsupported one."""


def vocabulary_read(folder: str) -> tuple[bytes, ...]:
    """Return the bytes of each token by id, empty for an id without a token; cached until the file changes.

    Raises VocabularyUnreadable.
    """
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
    as_bytes = {
        number: _byte_level(token) if is_byte_level else _sentence_piece(token)
        for token, number in tokens.items()
    }
    added = {entry["id"]: entry["content"].encode() for entry in content.get("added_tokens", [])}
    as_bytes |= added
    num_tokens = max(as_bytes, default=-1) + 1
    if num_tokens > MAX_TOKENS:
        raise ValueError(f"token id {num_tokens - 1} is beyond {MAX_TOKENS}")
    return tuple(as_bytes.get(number, b"") for number in range(num_tokens))


def _tokens(model: dict[str, Any]) -> dict[str, int]:
    """Return ids by token. BPE and WordPiece store this mapping; Unigram lists tokens with their scores."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {entry[0]: number for number, entry in enumerate(vocabulary)}
    return dict(vocabulary)


def _decoder_types(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    return {decoder["type"]}.union(*(_decoder_types(inner) for inner in decoder.get("decoders", [])))


def _byte_level(token: str) -> bytes:
    """Decode a byte-level token. A token with characters outside the alphabet was added as plain text."""
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def _sentence_piece(token: str) -> bytes:
    lone = _LONE_BYTE.fullmatch(token)
    return bytes([int(lone[1], 16)]) if lone else token.replace("▁", " ").encode()


def _alphabet() -> dict[str, int]:
    """Return GPT-2's alphabet: printable bytes stand for themselves, all others for U+0100, U+0101, … in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + code): byte for code, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_ALPHABET = _alphabet()
