"""Encodes answers as bytes for browsers: a JSON header, then little-endian arrays that can be viewed without a copy.

Layout: the header's length as uint32, the header padded with spaces to a multiple of four bytes, then the arrays.
"""

import gzip
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse

ALIGNMENT = 4
GZIP_LEVEL = 1  # sparse integers shrink to a tenth in little time
MIN_GZIP_BYTES = 2048
CONTENT_TYPE = "application/octet-stream"


def binary_encode(header: Mapping[str, Any], arrays: Iterable[bytes]) -> bytes:
    encoded = orjson.dumps(header)
    encoded += b" " * (-len(encoded) % ALIGNMENT)
    return b"".join([len(encoded).to_bytes(4, "little"), encoded, *arrays])


def binary_response(request: HttpRequest, body: bytes, *, is_immutable: bool) -> HttpResponse:
    """Answer with bytes. With `is_immutable`, this address always gives these bytes, so the browser may cache them."""
    headers = {"Cache-Control": "private, max-age=86400, immutable" if is_immutable else "private, no-store"}
    if len(body) >= MIN_GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, GZIP_LEVEL)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return HttpResponse(body, content_type=CONTENT_TYPE, headers=headers)
