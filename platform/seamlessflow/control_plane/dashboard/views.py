"""The browser application: all its addresses answer with the same built page, which does the routing.

Takes a signed-in visitor; returns the front end's built `index.html`, never cached, with the CSRF cookie that its
requests need. If nothing was built, it returns a small page that says how to build.
"""

from functools import cache
from http import HTTPStatus
from pathlib import Path

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe

INDEX = Path(__file__).parent / "static" / "dashboard" / "index.html"


@require_safe
@login_required(login_url="/signin")
@ensure_csrf_cookie
@never_cache
def application(request: HttpRequest) -> HttpResponse:
    page = built_page()
    if page is None:
        return render(request, "dashboard/not_built.html", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return HttpResponse(page)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponseRedirect("/signin")


def built_page() -> bytes | None:
    """Return the page of the build, read once; None if there is no build."""
    return _read(INDEX) if INDEX.exists() else None


@cache
def _read(page: Path) -> bytes:
    return page.read_bytes()
