"""Reads request bodies strictly: it refuses unknown keys instead of ignoring them."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from seamlessflow.control_plane.common.errors import ApplicationError, field_error


def body_read(request: Request, kind: type[serializers.Serializer]) -> dict[str, Any]:
    """Return the validated body. Raises ApplicationError or DRF's ValidationError, each naming the field."""
    if not isinstance(request.data, dict):
        raise ApplicationError("the body must be a JSON object")
    body = kind(data=request.data)
    for field in request.data:
        if field not in body.fields:
            accepted = ", ".join(sorted(body.fields))
            raise field_error(str(field), f"is not a known field; accepted: {accepted}")
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)
