"""Errors as the clients of Google's API read them: a code, a message, and a status in words."""

from http import HTTPStatus

from seamlessflow.core.protocol.google_gemini import GeminiError, GeminiErrorBody
from seamlessflow.data_plane.errors import ApiError, ContextTooLong

TOO_LONG = "The input token count ({num_tokens}) exceeds the maximum number of tokens allowed ({max_tokens})."
_STATUS = {
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}


def gemini_error(error: ApiError) -> GeminiErrorBody:
    if isinstance(error, ContextTooLong):
        error = error.worded(TOO_LONG, param="contents")
    error = error.naming("contents")
    status = _STATUS.get(error.status, "INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT")
    return GeminiErrorBody(error=GeminiError(code=int(error.status), message=error.message, status=status))
