"""Seals reasoning into opaque text that a client hands back: a thinking block's signature, or `encrypted_content`.

The text is stored in the seal with its digest, so that a gateway that keeps nothing can restore it and notice that it
was edited. It is not encrypted: an agent may read its own reasoning.
"""

import base64
import binascii
import hashlib
import zlib

PREFIX = "sf1."
MAX_REASONING_BYTES = 16 << 20
_DIGEST_BYTES = 16


class BrokenSeal(ValueError):
    """The text begins as a seal of this gateway and was changed since."""


def reasoning_seal(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    return PREFIX + base64.b64encode(_digest(raw) + zlib.compress(raw, 1)).decode()


def reasoning_unseal(sealed: str) -> str | None:
    """Return the reasoning, or None if another server issued the text. Raises BrokenSeal."""
    if not sealed.startswith(PREFIX):
        return None
    try:
        body = base64.b64decode(sealed[len(PREFIX) :], validate=True)
        raw = zlib.decompressobj().decompress(body[_DIGEST_BYTES:], MAX_REASONING_BYTES)
        text = raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise BrokenSeal("the seal cannot be read") from error
    if _digest(raw) != body[:_DIGEST_BYTES]:
        raise BrokenSeal("the seal does not belong to this text")
    return text


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()
