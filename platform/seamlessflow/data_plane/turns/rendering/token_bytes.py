"""The bytes that one token stands for, also where they are only a part of a character.

It takes a tokenizer and a token; byte-level tokens spell each byte as a character, byte-fallback tokens as `<0xE2>`.
"""

import functools
import re

from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(tokenizer: Tokenizer, token_id: int, text: str) -> bytes:
    """Return the bytes of a token whose own text is `text`. The bytes of an answer's tokens join to its text."""
    if REPLACEMENT not in text:
        return text.encode()
    written = tokenizer.id_to_token(token_id) or ""
    if fallback := _FALLBACK.fullmatch(written):
        return bytes([int(fallback[1], 16)])
    spelled = _byte_level()
    return bytes(spelled[char] for char in written) if all(c in spelled for c in written) else text.encode()


@functools.cache
def _byte_level() -> dict[str, int]:
    """Return the byte of each character of byte-level tokens: printable ones stand for themselves."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + n): byte for n, byte in enumerate(others)}
