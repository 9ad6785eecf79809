"""Bare ASGI: reads headers and bodies, sends answers, and notices when the client leaves.

Request bodies are bounded one by one and all together. A `RequestBody` counts the bytes it has read until it is
released: when the request has become a prompt or a command, or has failed. Read a body only after the caller's
credential was checked. If the common bound is exceeded, the answer is 503: to wait would leave every body half read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

from seamlessflow.data_plane.errors import ApiError
from seamlessflow.runtime.http.bodies import Body, BodyAccount, BodyRefused, ClientGone
from seamlessflow.runtime.http.bodies import Scope as BodyScope

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Result = TypeVar("Result")
JSON = b"application/json"


async def wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, which ends with the client's connection. Raises ClientGone.

    What a client waits for must not be given to one that has left. Read the request's body before.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(wait_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))
    if working.cancelled():
        raise ClientGone("the client disconnected before its request was answered")
    return working.result()


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


async def send_error(send: Send, error: ApiError, body: bytes, *, status: int | None = None) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    await send_whole(send, body, status=status or error.status, headers=headers)


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value, or "" if it is absent."""
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
            HTTPStatus.UNAUTHORIZED,
            "The Authorization header has no bearer token; send 'Authorization: Bearer <key>'.",
            code="invalid_api_key",
        )
    return token.strip()


def credential(scope: Scope) -> str:
    """Return the session's key: the bearer token, or as Anthropic's and Google's clients send it. Raises ApiError."""
    key = header(scope, b"x-api-key").strip() or _google_key(scope)
    return key if key and not header(scope, b"authorization") else bearer(scope)


def _google_key(scope: Scope) -> str:
    """Return the key as Google's clients send it, in a header or in the query; "" if there is none."""
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("key", [""])[0]
    return header(scope, b"x-goog-api-key").strip() or asked.strip()


class BodyBudget(BodyAccount):
    """The gateway's account of bodies, which refuses as its other routes do."""

    def body(self, max_bytes: int | None = None) -> "RequestBody":
        return RequestBody(self, max_bytes)


class RequestBody(Body):
    """One body. Use it as a context, or call `release` once the bytes are no longer needed."""

    async def read(self, scope: BodyScope, receive: Receive) -> bytes:
        """Read the whole body. Raises ApiError (413, 503) and ClientGone."""
        try:
            return await super().read(scope, receive)
        except BodyRefused as error:
            if error.status is not HTTPStatus.SERVICE_UNAVAILABLE:
                raise ApiError(error.status, error.detail) from None
            retry = {"retry-after": "1"}
            raise ApiError(error.status, error.detail, code="overloaded", headers=retry) from None
