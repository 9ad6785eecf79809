"""Reads query parameters whose type is not text. A value that is not accepted is refused by name (400)."""

from rest_framework.request import Request

from seamlessflow.control_plane.common.errors import field_error


def query_boolean(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false")
    if value not in ("true", "false"):
        raise field_error(name, f"{value!r} is not accepted; accepted: true, false")
    return bool(value == "true")
