"""API tokens: `Authorization: Bearer sft_…`. A caller without one may still have a browser session."""

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from seamlessflow.control_plane.accounts.models import Token, TokenKind, User
from seamlessflow.control_plane.accounts.selectors import token_find, token_touch


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
