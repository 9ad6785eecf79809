"""API tokens: `Authorization: Bearer sft_…`. A caller without one may still have a browser session."""

import io
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from seamlessflow.control_plane.accounts.models import Token, TokenKind, User
from seamlessflow.control_plane.accounts.selectors.access import token_find
from seamlessflow.control_plane.accounts.services.token_use import token_touch


class ApiTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        scheme, _, secret = get_authorization_header(request).decode("latin-1").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer":
            raise AuthenticationFailed(f"authorization scheme {scheme!r} is not known; accepted: Bearer")
        token = token_find(secret=secret.strip(), kind=TokenKind.API)
        if token is None or token.user is None or not token.user.is_active:
            raise AuthenticationFailed("this API token is unknown, expired or revoked")
        token_touch(token=token)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="SeamlessFlow"'


async def is_caller_known(scope: MutableMapping[str, Any]) -> bool:
    """Whether the head of a request bears a live API token or the cookie of a signed-in browser.

    This only decides whether the body is read; permissions are checked later, as for any request.
    """
    return bool(await database_sync_to_async(_is_known, thread_sensitive=False)(scope))


def _is_known(scope: MutableMapping[str, Any]) -> bool:
    request = ASGIRequest(scope, io.BytesIO())
    try:
        if get_authorization_header(request):
            return ApiTokenAuthentication().authenticate(request) is not None
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(cookie)
        return get_user(request).is_authenticated
    except AuthenticationFailed:
        return False
