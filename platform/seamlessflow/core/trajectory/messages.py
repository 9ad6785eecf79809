"""Canonical digests of chat messages. A request is matched on them before its text proves the match.

Takes messages in the OpenAI chat format and returns 16 bytes per message, and 8 more if it has reasoning. Messages that
every template renders the same get the same digest. It does not depend on the order of keys, on whether empty content
is absent, null or "", on whether text is in parts or in a string and arguments are an object or JSON text, on how no
arguments ("" or {}) and numbers in arguments (1.0 or 1) are written, or on identifiers of tool calls. Invariant: the
digest of an answer whose reasoning an agent left out begins the digest of the answer with it (`is_same_message`).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

DIGEST_BYTES = 16
REASONING_BYTES = 8
_MAX_EXACT = float(1 << 53)  # JavaScript writes whole numbers up to here without a point
_THINK = re.compile(r"\A\s*(?:<think>)?(.*?)</think>", re.DOTALL)


def message_text(content: Any) -> str:
    """Return the text of a content field: a string, a list of text parts, or None. Raises ValueError otherwise."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(map(_is_text_part, content)):
        return "".join(part.get("text", "") for part in content)
    odd = (
        next((part for part in content if not _is_text_part(part)), None)
        if isinstance(content, list)
        else None
    )
    kind = (
        f", got one of type {odd['type']!r}"
        if isinstance(odd, dict) and odd.get("type") not in (None, "text")
        else ""
    )
    raise ValueError(f"content must be a string, null or a list of parts of type 'text'{kind}")


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text", ""), str)


def tool_arguments(arguments: Any) -> Any:
    """Return the arguments of a tool call parsed from JSON; text that is not JSON is returned unchanged.

    No text is no arguments, {}.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _number(written: str) -> float | int:
    value = float(written)
    return int(value) if value.is_integer() and abs(value) < _MAX_EXACT else value


_decode_canonical = msgspec.json.Decoder(float_hook=_number).decode


def _canonical_arguments(arguments: Any) -> Any:
    """Return parsed arguments with whole numbers as integers, as a client writes them that parsed them itself."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        return _decode_canonical(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments))
    except msgspec.DecodeError:
        return arguments


def message_digest(message: Mapping[str, Any]) -> bytes:
    role = message.get("role")
    text = message_text(message.get("content"))
    reasoning = b""
    if role == "assistant":
        reasoning = _reasoning_digest(message, text)
        text = _THINK.sub("", text, count=1).strip()
    calls = [
        [call["function"].get("name"), _canonical_arguments(call["function"].get("arguments"))]
        for call in message.get("tool_calls") or ()
    ]
    return value_digest([role, text, calls, message.get("name") if role != "tool" else None]) + reasoning


def _reasoning_digest(message: Mapping[str, Any], text: str) -> bytes:
    """Return the digest of a message's reasoning, in its own field or before its text; none if it has no reasoning."""
    block, own = _THINK.match(text), message.get("reasoning_content")
    found = [own if isinstance(own, str) else "", block[1] if block else ""]
    raw = "\n".join(dict.fromkeys(text.strip() for text in found if text.strip()))
    if not raw:
        return b""
    return hashlib.blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=REASONING_BYTES).digest()


def is_same_message(sent: bytes, recorded: bytes) -> bool:
    """Return whether a message with the digest `sent` repeats a recorded one, perhaps without its reasoning."""
    return sent == recorded or (len(sent) == DIGEST_BYTES and recorded.startswith(sent))


def without_reasoning(digest: bytes) -> bytes:
    """Return the digest that the same message has without its reasoning."""
    return digest[:DIGEST_BYTES]


def with_reasoning_of(digest: bytes, source: bytes) -> bytes:
    """Return the digest of a message with the reasoning of the one whose digest is `source`, which may have none."""
    return without_reasoning(digest) + source[DIGEST_BYTES:]


def calls_digest(message: Mapping[str, Any]) -> bytes:
    """Return the digest of a message's calls with their identifiers; none if it has no calls."""
    calls = [
        [
            call.get("id"),
            call["function"].get("name"),
            _canonical_arguments(call["function"].get("arguments")),
        ]
        for call in message.get("tool_calls") or ()
    ]
    return value_digest(calls) if calls else b""


def digest_without_text(message: Mapping[str, Any]) -> bytes:
    """Return the digest by which an answer is known if its text is dropped; none if it has no text or no calls."""
    return calls_digest(message) if message_text(message.get("content")).strip() else b""


def message_digests(messages: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    return tuple([_plain_digest(message) or message_digest(message) for message in messages])


def _plain_digest(message: Mapping[str, Any]) -> bytes | None:
    """Return the digest of a message that has a text, a role and nothing else, as most; None of others."""
    role, content = message.get("role"), message.get("content")
    if len(message) != 2 or type(content) is not str or role is None:
        return None
    if role != "assistant":
        return value_digest([role, content, [], None])
    return None if "</think>" in content else value_digest([role, content.strip(), [], None])


_encode_ordered = msgspec.json.Encoder(order="deterministic").encode


def value_digest(value: Any) -> bytes:
    """Return the digest of a JSON value. It does not depend on the order of keys."""
    raw = _encode_ordered(value)
    return hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest()
