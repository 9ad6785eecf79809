"""Bare ASGI: sends answers, reads headers, and finds out whether the client is still there."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

from seamlessflow.data_plane.errors import ApiError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"


async def wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_head(
    send: Send, status: int, content_type: bytes, *, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", content_type), *headers],
        }
    )


async def send_whole(
    send: Send,
    body: bytes,
    *,
    status: int = 200,
    content_type: bytes = JSON,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send_head(send, status, content_type, headers=(length, *headers))
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send_whole(send, error.body, status=error.status, headers=headers)


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value, empty when absent."""
    for key, value in scope["headers"]:
        if key == name:
            decoded: str = value.decode("latin-1")
            return decoded
    return ""


def bearer(scope: Scope) -> str:
    """Return the bearer token. Raises ApiError (401)."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ApiError(
            HTTPStatus.UNAUTHORIZED, "The request carries no bearer token.", code="invalid_api_key"
        )
    return token.strip()
