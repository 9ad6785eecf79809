"""Errors as Anthropic's clients read them: the types, the status and the words by which these know an error."""

from http import HTTPStatus

from seamlessflow.core.protocol.anthropic_messages import (
    MessageError,
    MessageErrorBody,
    MessageErrorDetails,
)
from seamlessflow.data_plane.errors import ApiError, ContextTooLong

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
OVERLOADED_STATUS = 529  # of Anthropic's API, instead of 503


def message_status(error: ApiError) -> int:
    return OVERLOADED_STATUS if error.status is HTTPStatus.SERVICE_UNAVAILABLE else error.status


def message_error(error: ApiError) -> MessageErrorBody:
    if isinstance(error, ContextTooLong):
        error = error.worded(_too_long(error))
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    body = MessageErrorBody(
        error=MessageError(type=kind, message=error.message, param=error.param, code=error.code)
    )
    if error.param == "thread":
        body.error.details = MessageErrorDetails()
    return body


def _too_long(error: ContextTooLong) -> str:
    """Return the words by which Claude Code knows that it must compact: the first number is above the second.

    A prompt as long as the context is too long as well, because its answer has a token.
    """
    longest = min(error.max_tokens, error.num_tokens - 1)
    return f"prompt is too long: {error.num_tokens} tokens > {longest} maximum"
