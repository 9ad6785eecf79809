"""Errors in the form that OpenAI clients read: `{"error": {"message", "type", "param", "code"}}`.

A dialect may have its own form. All other routes answer with RFC 9457 problems, which have the same `error` object as
an extra member.
"""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from seamlessflow.core.protocol.gateway_errors import ErrorBody, ErrorDetail, Fault, Problem

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


class ApiError(Exception):
    """An anticipated failure, sent to the client. The OpenAI SDKs retry 5xx and 409, but no other 4xx."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def naming(self, field: str) -> "ApiError":
        """Return the error for an API whose field for the conversation has another name than `messages`."""
        if self.param != "messages":
            return self
        return ApiError(self.status, self.message, param=field, code=self.code, headers=self.headers)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(ErrorBody(error=self._error))

    @property
    def problem(self) -> bytes:
        """Return the same error as `application/problem+json`."""
        problem = Problem(
            type="about:blank",
            title=self.status.phrase,
            status=self.status.value,
            detail=self.message,
            errors=[Fault(field=self.param, detail=self.message)] if self.param else [],
            error=self._error,
        )
        return msgspec.json.encode(problem)

    @property
    def _error(self) -> ErrorDetail:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return ErrorDetail(message=self.message, type=kind, param=self.param, code=self.code)


class ContextTooLong(ApiError):
    """The prompt leaves no room for an answer. Clients that know the words of their API make it shorter and go on.

    `num_tokens` is a lower bound if the text is so long that it was not tokenised. The message has the words of Chat
    Completions; a dialect with other words has them from `worded`.
    """

    def __init__(
        self, num_tokens: int, max_tokens: int, message: str = "", *, param: str = "messages"
    ) -> None:
        text = message or (
            f"This model's maximum context length is {max_tokens} tokens. However, your messages resulted in "
            f"{num_tokens} tokens. Please reduce the length of the messages."
        )
        super().__init__(HTTPStatus.BAD_REQUEST, text, param=param, code="context_length_exceeded")
        self.num_tokens, self.max_tokens = num_tokens, max_tokens

    def worded(self, message: str, *, param: str = "messages") -> "ContextTooLong":
        """Return the same error in the words of another API, which may name the numbers of tokens in braces."""
        text = message.format(num_tokens=self.num_tokens, max_tokens=self.max_tokens)
        return ContextTooLong(self.num_tokens, self.max_tokens, text, param=param)


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)


def param_of(message: str) -> str | None:
    """Return the field that a message of msgspec names, as in "… - at `$.messages[0]`"; None if it names none."""
    return message.rpartition("`$.")[2].rstrip("`") if "`$." in message else None
