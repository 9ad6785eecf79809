"""The sign-in pages. GET of a one-time link shows a button, POST uses it up: link previews are harmless.

Invariant: no secret is checked before `sign_in_attempts` allows it.
"""

from http import HTTPStatus

from django.contrib import admin
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from seamlessflow.control_plane.accounts.services.people import sign_in_token_use
from seamlessflow.control_plane.accounts.services.records import password_recorded
from seamlessflow.control_plane.accounts.services.sign_in_attempts import (
    SignInLocked,
    attempt_begin,
    attempt_succeeded,
)
from seamlessflow.control_plane.common.admin.pages import author_of

BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest, secret: str) -> HttpResponse:
    if request.method == "GET":
        return render(request, "accounts/sign_in.html")
    try:
        attempt = attempt_begin(address=_address(request))
    except SignInLocked as locked:
        return _locked(request, locked)
    user = sign_in_token_use(secret=secret)
    if user is None:
        return render(request, "accounts/sign_in.html", {"is_used": True}, status=HTTPStatus.GONE)
    attempt_succeeded(attempt)
    login(request, user, backend=BACKEND)
    return HttpResponseRedirect("/")


@require_safe
def sign_in_help(request: HttpRequest) -> HttpResponse:
    """Show a visitor how to sign in. The only password form is the admin site's."""
    return render(request, "accounts/sign_in_help.html")


@never_cache
def sign_in_by_password(request: HttpRequest) -> HttpResponse:
    """The sign-in form of the admin site, throttled."""
    if request.method != "POST":
        return admin.site.login(request)
    try:
        attempt = attempt_begin(address=_address(request), username=request.POST.get("username", ""))
    except SignInLocked as locked:
        return _locked(request, locked)
    response = admin.site.login(request)
    if request.user.is_authenticated:
        attempt_succeeded(attempt)
    return response


def password_change(request: HttpRequest) -> HttpResponse:
    """The admin site's page on which people change their own password."""
    with password_recorded(str(request.user.pk), author=author_of(request)):
        return admin.site.password_change(request)


def _address(request: HttpRequest) -> str:
    """Return the client's address. The server has already replaced a trusted proxy's address with it."""
    return str(request.META.get("REMOTE_ADDR", ""))


def _locked(request: HttpRequest, locked: SignInLocked) -> HttpResponse:
    minutes = -(-locked.retry_after_s // 60)
    response = render(
        request, "accounts/sign_in_locked.html", {"minutes": minutes}, status=HTTPStatus.TOO_MANY_REQUESTS
    )
    response["Retry-After"] = str(locked.retry_after_s)
    return response
