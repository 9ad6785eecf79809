"""Server-sent events as the APIs with named events write them: the name is the `type` of the data."""

from typing import Any

import msgspec

_encode = msgspec.json.encode


def named_event(name: str, body: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode(body) + b"\n\n"
