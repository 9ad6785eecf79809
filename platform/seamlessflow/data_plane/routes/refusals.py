"""In which API's form a request is refused: the one of its path, or the one of its client's headers.

Takes the scope of a request; returns the dialect whose errors its client reads. Routes of the platform's own (sessions,
runners, trainers) have none and answer with problems. Invariant: a refusal has the same form wherever it is made.
"""

from http import HTTPStatus
from typing import Any

from seamlessflow.data_plane.dialects.catalog import DIALECTS
from seamlessflow.data_plane.dialects.chat.dialect import ChatDialect
from seamlessflow.data_plane.dialects.dialect import Dialect
from seamlessflow.data_plane.dialects.messages.dialect import MessagesDialect
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.gemini import WHOLE, is_of_gemini
from seamlessflow.data_plane.routes.http import Scope, Send, header, send_error

OWN_PATHS = ("/v1/sessions",)
MAX_PATH_SHOWN = 200
_CHAT, _MESSAGES = ChatDialect(), MessagesDialect()


def spoken_dialect(scope: Scope) -> Dialect[Any] | None:
    """Return the dialect of a request; None for a route of the platform's own."""
    path = scope["path"]
    if is_of_gemini(path):
        return WHOLE
    if not path.startswith("/v1/") or _is_below(path, OWN_PATHS):
        return None
    for dialect in DIALECTS:
        if _is_below(path, (dialect.path,)):
            return dialect
    return _MESSAGES if is_of_anthropic(scope) else _CHAT


def is_of_anthropic(scope: Scope) -> bool:
    """Return whether Anthropic's clients sent a request, where the path does not show it."""
    if header(scope, b"anthropic-version"):
        return True
    return bool(header(scope, b"x-api-key")) and not header(scope, b"authorization")


def unknown_route(scope: Scope) -> ApiError:
    """Return the error for a path that the gateway does not have."""
    shown = f"{scope['method']} {scope['path'][:MAX_PATH_SHOWN]}"
    hint = " The client's base URL must not end with /v1." if scope["path"].startswith("/v1/v1/") else ""
    return ApiError(HTTPStatus.NOT_FOUND, f"This gateway has no route {shown}.{hint}", code="unknown_url")


def wrong_method(scope: Scope, allowed: str) -> ApiError:
    message = f"{scope['path'][:MAX_PATH_SHOWN]} does not accept {scope['method']}; send {allowed}."
    return ApiError(
        HTTPStatus.METHOD_NOT_ALLOWED, message, code="method_not_allowed", headers={"allow": allowed}
    )


async def refuse(send: Send, scope: Scope, error: ApiError) -> None:
    """Send an error in the form that the client of this request reads."""
    dialect = spoken_dialect(scope)
    if dialect is None:
        await send_error(send, error, error.body)
    else:
        await send_error(send, error, dialect.error(error), status=dialect.status(error))


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)
