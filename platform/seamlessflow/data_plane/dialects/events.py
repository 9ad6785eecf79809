"""Server-sent events, with names or with data alone."""

from typing import Any

import msgspec

EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON_STREAM = b"application/json"  # one list, which grows
STREAM_END = b"data: [DONE]\n\n"
KEEPALIVE = b": keep-alive\n\n"
_encode = msgspec.json.encode


def comment(text: str) -> bytes:
    """Return a line that clients skip and people read."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


def data_event(body: Any) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


def named_event(name: str, body: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode(body) + b"\n\n"
