"""Heads of requests that the house writes itself, and the addresses to which they go.

Takes an endpoint's URL and header lines; returns bytes. Invariant: a head is ASCII and has no line that a value added.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

NO_HEADERS: Mapping[str, str] = {}
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server. `authority` is the value of the `Host` header; `path` precedes every path."""

    host: str
    port: int
    is_encrypted: bool
    authority: str
    path: str


@functools.lru_cache(maxsize=1024)
def address_of(endpoint: str) -> Address:
    """Return the address in a URL. Raises ConnectionError."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ConnectionError(f"the endpoint must be an http or https URL, got {endpoint!r}") from error
    if not parts.hostname:
        raise ConnectionError(f"the endpoint must name a host, got {endpoint!r}")
    return Address(parts.hostname, port, parts.scheme == "https", parts.netloc, parts.path.rstrip("/"))


def request_head(method: str, address: Address, path: str, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
    """Return a head that `request_whole` ends. Raises ValueError if a line is not printable ASCII."""
    lines = [
        f"{method} {address.path}{path} HTTP/1.1",
        f"Host: {address.authority}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("the address and the headers of a request must be printable ASCII")
    return "\r\n".join((*lines, "")).encode()


def request_whole(head: bytes, body: bytes = b"") -> bytes:
    """Return a request's bytes, head and body."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
