"""Counts answered requests by method and status class for `/metrics`."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from prometheus_client import Counter

REQUESTS = Counter("seamlessflow_http_requests", "Requests answered by this process.", ["method", "status"])
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestCounterMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        # A client may invent methods; labels must stay few.
        method = request.method if request.method in _METHODS else "other"
        REQUESTS.labels(method=method, status=f"{response.status_code // 100}xx").inc()
        return response
