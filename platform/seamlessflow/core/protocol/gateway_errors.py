"""How the gateway refuses a request: with an OpenAI error on OpenAI's routes, and with an RFC 9457 problem elsewhere.

Defines the types of both bodies. Invariant: a problem also contains the OpenAI error, so a client that reads either
form finds it.
"""

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: (
        str  # invalid_request_error, authentication_error, permission_error, rate_limit_error or server_error
    )
    param: str | None  # the field that is at fault
    code: str | None  # a word for programs, such as admission_closed


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the form that OpenAI clients read."""

    error: ErrorDetail


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem (RFC 9457) that also contains the OpenAI error."""

    type: str
    title: str
    status: int
    detail: str  # the problem, in one sentence
    errors: list[Fault]
    error: ErrorDetail
