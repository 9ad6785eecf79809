"""The limits of every HTTP server of the house: how long a client may take, and how many bytes its bodies may have.

A server gives `HttpLimits` to its protocol, and an account of bodies (`bodies`) its sizes from the table below.
Invariant: a deadline or a size that two servers know has one name and one value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20

HEAD_S = 10.0
BODY_S = 30.0  # after that, the rate must be at least MIN_BODY_RATE
MIN_BODY_RATE = 16 * KIBIBYTE  # bytes/s
DRAIN_S = 30.0  # for a client to read some of its answer
KEEPALIVE_S = 75  # longer than any client or proxy keeps a connection that it may still use

MAX_HEAD_BYTES = 64 * KIBIBYTE
# Sizes of one body, by the server that reads it.
MAX_GATEWAY_BODY_BYTES = 32 * MEBIBYTE
MAX_ENGINE_BODY_BYTES = 64 * MEBIBYTE
MAX_FORM_BYTES = MEBIBYTE
MAX_JSON_BYTES = 2 * MEBIBYTE
MAX_WORKER_BYTES = 4 * MEBIBYTE  # a heartbeat that catches up after an outage
MULTIPART_OVERHEAD_BYTES = 64 * KIBIBYTE  # boundaries and headers around an uploaded file
# Sizes of all bodies of one process that are not parsed yet. Uploads have an account of their own (a setting).
MAX_GATEWAY_BODIES_BYTES = 256 * MEBIBYTE
MAX_ENGINE_BODIES_BYTES = 512 * MEBIBYTE
MAX_WEB_BODIES_BYTES = 128 * MEBIBYTE

Refusal = Callable[[HTTPStatus, str], tuple[bytes, bytes]]  # content type and body of an error answer


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of a server's connections. `refusal` writes errors in the form of the server's API."""

    refusal: Refusal
    max_connections: int = 4096
    head_s: float = HEAD_S
    body_s: float = BODY_S
    drain_s: float = DRAIN_S
