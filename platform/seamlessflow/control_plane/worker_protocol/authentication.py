"""Authenticates callers of the worker API: a machine by its token, a phase by its credential, a newcomer by the join
token.

A machine token is looked up and then remembered for a few seconds, so a revoked one works that much longer.
"""

import hmac
import time
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.models import TokenKind
from seamlessflow.control_plane.accounts.selectors.access import token_find
from seamlessflow.control_plane.accounts.selectors.secrets import secret_digest
from seamlessflow.control_plane.accounts.services.token_use import token_touch
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.core.protocol.credentials import InvalidCredential, PhaseClaims, phase_credential_verify

REMEMBERED_S = 5.0
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Remembered:
    machine_id: UUID
    until_s: float


_remembered: dict[str, _Remembered] = {}


def machine_authenticate(request: HttpRequest) -> UUID:
    """Return the machine's id. Raises ApplicationError (401)."""
    secret = _bearer(request)
    digest = secret_digest(secret)
    known = _remembered.get(digest)
    if known is not None and known.until_s > time.monotonic():
        return known.machine_id
    token = token_find(secret=secret, kind=TokenKind.MACHINE)
    if token is None or token.machine_id is None:
        _remembered.pop(digest, None)
        raise _unauthorized(
            "this machine token is unknown or revoked; create a new one with `seamlessflow machines register`"
        )
    token_touch(token=token)
    if len(_remembered) >= MAX_REMEMBERED:
        _remembered.clear()
    _remembered[digest] = _Remembered(token.machine_id, time.monotonic() + REMEMBERED_S)
    return token.machine_id


def phase_authenticate(request: HttpRequest) -> PhaseClaims:
    """Return the claims of the phase credential. Raises ApplicationError (401)."""
    secret = settings.SEAMLESSFLOW_SECRET_KEY
    try:
        return phase_credential_verify(_bearer(request), secret=secret, now_s=time.time())
    except InvalidCredential as error:
        raise _unauthorized(str(error)) from error


def join_authenticate(request: HttpRequest) -> None:
    """Check the join token. Raises ApplicationError: 401 for another secret, 403 if none is configured."""
    if not settings.JOIN_TOKEN:
        raise ApplicationError(
            "machines cannot join this installation by themselves; create a machine's token with "
            "`seamlessflow machines register`, or set SEAMLESSFLOW_JOIN_TOKEN on the web process (`seamlessflow up "
            "--listen` does)",
            status=HTTPStatus.FORBIDDEN,
        )
    if not hmac.compare_digest(_bearer(request).encode(), settings.JOIN_TOKEN.encode()):
        raise _unauthorized("this is not the join token of the installation")


def _bearer(request: HttpRequest) -> str:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise _unauthorized("the header `Authorization: Bearer …` is missing")
    return secret.strip()


def _unauthorized(detail: str) -> ApplicationError:
    return ApplicationError(detail, status=HTTPStatus.UNAUTHORIZED)
