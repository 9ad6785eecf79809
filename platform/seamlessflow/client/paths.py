"""Addresses of the API that contain identifiers."""

import re

from seamlessflow.client.errors import ApiError


def segment(identifier: str) -> str:
    """Check an identifier before it is used in a path, so that it cannot lead elsewhere. Raises ApiError."""
    if not re.fullmatch(r"[\w-]+", identifier, re.ASCII):
        raise ApiError(f"{identifier!r} is not an identifier", status=404)
    return identifier
