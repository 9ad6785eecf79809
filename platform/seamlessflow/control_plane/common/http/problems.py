"""Answers every error of the API as RFC 9457 `application/problem+json`.

Takes whatever a view raised; returns type, title, status, detail and `errors: [{field, detail}]`. An unexpected
error is logged with its trace and answered without it.
"""

import logging
import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from seamlessflow.control_plane.common.database.availability import AWAY, DATABASE_AWAY, RETRY_AFTER_S
from seamlessflow.control_plane.common.errors import ApplicationError, FieldFault
from seamlessflow.runtime.artifacts.store import StoreError

CONTENT_TYPE = "application/problem+json"
API_PREFIX = "/api/"
_log = logging.getLogger(__name__)


def problem_body(status: HTTPStatus, detail: str, faults: tuple[FieldFault, ...] = ()) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "errors": [{"field": fault.field, "detail": fault.detail} for fault in faults],
    }


def problem_response(status: HTTPStatus, detail: str, faults: tuple[FieldFault, ...] = ()) -> JsonResponse:
    return JsonResponse(problem_body(status, detail, faults), status=status, content_type=CONTENT_TYPE)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's hook. Returns None for an unexpected error: Django logs it and `server_error` answers."""
    headers: dict[str, str] = {}
    match error:
        case ApplicationError():
            status, detail, faults = error.status, error.detail, error.faults
        case Http404():
            status, detail, faults = HTTPStatus.NOT_FOUND, "there is nothing at this address", ()
        case PermissionDenied():
            status, detail, faults = HTTPStatus.FORBIDDEN, str(error) or "this is not allowed", ()
        case RequestDataTooBig():
            status, detail, faults = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), ()
        case OperationalError() | InterfaceError():
            status, detail, faults = HTTPStatus.SERVICE_UNAVAILABLE, AWAY, ()
            headers = {"Retry-After": str(RETRY_AFTER_S)}
        case StoreError():
            status, detail, faults = HTTPStatus.SERVICE_UNAVAILABLE, str(error), ()
        case DataError():
            # This backs up the checks of each field: a value that the database refuses is the client's fault.
            status, detail, faults = HTTPStatus.BAD_REQUEST, data_refused(error), ()
        case exceptions.ValidationError():
            faults = tuple(_faults(error.detail, ""))
            status, detail = HTTPStatus.BAD_REQUEST, "; ".join(_sentence(fault) for fault in faults)
        case exceptions.APIException():
            status, detail, faults = HTTPStatus(error.status_code), str(error.detail), ()
            headers = _headers(error)
        case _:
            return None
    response = Response(problem_body(status, detail, faults), status=status, headers=headers)
    response.content_type = CONTENT_TYPE
    return response


def database_away(request: HttpRequest) -> HttpResponse:
    """Answer 503. A client that asks again is served as soon as the database is back."""
    response: HttpResponse
    if request.path.startswith((API_PREFIX, "/healthz")):
        response = problem_response(HTTPStatus.SERVICE_UNAVAILABLE, AWAY)
    else:
        response = HttpResponse(
            "The database does not answer. Reload this page in a moment.",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            content_type="text/plain",
        )
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def data_refused(error: DataError) -> str:
    return f"a value of the request cannot be stored: {str(error).splitlines()[0]}"


def _headers(error: exceptions.APIException) -> dict[str, str]:
    header = getattr(error, "auth_header", None)
    return {"WWW-Authenticate": header} if header else {}


def _faults(detail: Any, field: str) -> Iterator[FieldFault]:
    """Flatten DRF's nested lists and mappings of messages."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            nested = "" if key == "non_field_errors" else str(key)
            yield from _faults(value, ".".join(name for name in (field, nested) if name))
    elif isinstance(detail, list):
        for value in detail:
            yield from _faults(value, field)
    else:
        yield FieldFault(field, str(detail))


def _sentence(fault: FieldFault) -> str:
    return f"{fault.field}: {fault.detail}" if fault.field else fault.detail


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith(API_PREFIX):
        return problem_response(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path}")
    return HttpResponse(
        "There is nothing at this address.", status=HTTPStatus.NOT_FOUND, content_type="text/plain"
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that Django refuses before any view, usually because of an unknown host name."""
    detail = "the request is malformed"
    if isinstance(exception, DisallowedHost):
        host = request.META.get("HTTP_HOST", "")
        detail = f"Host: {host!r} is not a name of this control plane; accepted: those in SEAMLESSFLOW_ALLOWED_HOSTS"
    if request.path.startswith(API_PREFIX):
        return problem_response(HTTPStatus.BAD_REQUEST, detail)
    return HttpResponse(f"{detail}.", status=HTTPStatus.BAD_REQUEST, content_type="text/plain")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected error. Django has logged the trace; the client learns only that it happened, or that the
    database is away.
    """
    if isinstance(sys.exc_info()[1], DATABASE_AWAY):
        return database_away(request)
    if request.path.startswith(API_PREFIX):
        return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says why")
    return HttpResponse(
        "The server failed; its log says why.",
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        content_type="text/plain",
    )
