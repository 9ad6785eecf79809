"""Limits what a page of this host may load: nothing from other hosts, and no script or style inside the page.

Django's admin works with this. The browsable API reference has styles inside its page, so it may use those.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

HEADER = "Content-Security-Policy"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
API_REFERENCE = "/api/v1/schema/ui"
API_REFERENCE_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")


class ContentPolicyMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        response.headers[HEADER] = API_REFERENCE_POLICY if request.path == API_REFERENCE else POLICY
        return response
