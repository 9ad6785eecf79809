"""Errors in the form that Anthropic's clients read."""

from http import HTTPStatus

from seamlessflow.core.protocol.anthropic_messages import (
    MessageError,
    MessageErrorBody,
    MessageErrorDetails,
)
from seamlessflow.data_plane.errors import ApiError

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}


def message_error(error: ApiError) -> MessageErrorBody:
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    body = MessageErrorBody(
        error=MessageError(type=kind, message=error.message, param=error.param, code=error.code)
    )
    if error.param == "thread":
        body.error.details = MessageErrorDetails()
    return body
