"""The sign-in pages. Of the one-time link GET shows a button, POST uses it up: a preview of it costs nothing."""

from http import HTTPStatus

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from seamlessflow.control_plane.accounts.services import sign_in_token_use

BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest, secret: str) -> HttpResponse:
    if request.method == "GET":
        return render(request, "accounts/sign_in.html")
    user = sign_in_token_use(secret=secret)
    if user is None:
        return render(request, "accounts/sign_in.html", {"is_used": True}, status=HTTPStatus.GONE)
    login(request, user, backend=BACKEND)
    return HttpResponseRedirect("/")


@require_safe
def sign_in_help(request: HttpRequest) -> HttpResponse:
    """Tells a visitor how to sign in; there is no password form besides the admin's."""
    return render(request, "accounts/sign_in_help.html")
