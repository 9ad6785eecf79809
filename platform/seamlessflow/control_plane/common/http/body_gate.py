"""The door of the web process: it stores no body before it knows that the route takes one.

Takes an ASGI application and returns it behind bounds. It refuses a body that is announced too large at once, and one
that comes in chunks as soon as it grows too large. It refuses uploads of unknown callers before it reads them, and
gives up a body that does not come or comes too slowly. Invariant: at any moment the process holds no more bytes of
bodies than the two `InFlight` accounts allow.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.conf import settings

from seamlessflow.control_plane.common.database.availability import AWAY, DATABASE_AWAY, RETRY_AFTER_S
from seamlessflow.control_plane.common.http.body_bounds import MEBIBYTE, Bound, body_bound
from seamlessflow.control_plane.common.http.problems import CONTENT_TYPE, problem_body

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]

MAX_SMALL_IN_FLIGHT_BYTES = 128 * MEBIBYTE
SILENCE_S = 30.0  # how long the client may send nothing
PATIENCE_S = 60.0  # after this time the average speed counts
LEAST_BYTES_PER_S = 16 * 1024
MAX_LENGTH_DIGITS = 18
# What a client may still send after a refusal, so that it reads our answer rather than a reset connection.
LINGER_S, LINGER_BYTES = 3.0, 16 * MEBIBYTE


class BodyRefused(Exception):
    """The body is refused, and nothing of it is kept."""

    def __init__(self, status: HTTPStatus, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class InFlight:
    """Bytes of bodies that requests hold right now."""

    max_bytes: int
    num_bytes: int = 0

    def take(self, num_bytes: int) -> None:
        """Take bytes from the account. Raises BodyRefused (503) and takes nothing if there is no room."""
        if self.num_bytes + num_bytes > self.max_bytes:
            raise BodyRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the bodies being received hold {self.num_bytes} of {self.max_bytes} bytes; try again later",
                retry_after_s=5,
            )
        self.num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self.num_bytes -= num_bytes


class BodyGate:
    """The application behind bounds. `is_known` decides by a request's head alone whether its sender may upload."""

    def __init__(self, application: Application, *, is_known: Callable[[Scope], Awaitable[bool]]) -> None:
        self._application = application
        self._is_known = is_known
        self._small = InFlight(MAX_SMALL_IN_FLIGHT_BYTES)
        self._uploads = InFlight(settings.MAX_UPLOADS_IN_FLIGHT_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bound = body_bound(
            method=scope["method"], path=scope["path"], max_upload_bytes=settings.MAX_UPLOAD_BYTES
        )
        body: _Body | None = None
        try:
            num_announced = _announced(scope)
            _check(num_announced, bound, scope)
            if bound.is_upload and not await self._is_known(scope):
                raise BodyRefused(HTTPStatus.UNAUTHORIZED, "uploads need an API token or a signed-in browser")
            body = _Body(receive, scope, bound, self._uploads if bound.is_upload else self._small)
            body.reserve(num_announced if bound.is_upload and num_announced else 0)
            await self._application(scope, body.receive, send)
        except DATABASE_AWAY:  # raised while looking up who uploads
            away = BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, AWAY, retry_after_s=RETRY_AFTER_S)
            await _refuse(away, receive, send)
        except BodyRefused as refusal:
            await _refuse(refusal, receive, send)
        finally:
            if body is not None:
                body.release()


class _Body:
    """The body of one request while it arrives. `receive` raises BodyRefused if it is refused."""

    def __init__(self, receive: Receive, scope: Scope, bound: Bound, account: InFlight) -> None:
        self._receive = receive
        self._scope = scope
        self._bound = bound
        self._account = account
        self._started_s = time.monotonic()
        self._num_received = 0
        self._num_taken = 0  # bytes taken from the account: reserved, or received
        self._is_whole = False

    def reserve(self, num_bytes: int) -> None:
        self._account.take(num_bytes)
        self._num_taken = num_bytes

    def release(self) -> None:
        self._account.give_back(self._num_taken)
        self._num_taken = 0

    async def receive(self) -> Message:
        if self._is_whole:  # the next message tells that the client has left
            return await self._receive()
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await self._receive()
        except TimeoutError:
            raise BodyRefused(
                HTTPStatus.REQUEST_TIMEOUT, f"no part of the body arrived for {SILENCE_S:.0f} s"
            ) from None
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
            self._is_whole = not message.get("more_body", False)
        return message

    def _count(self, num_bytes: int) -> None:
        self._num_received += num_bytes
        _check(self._num_received, self._bound, self._scope)
        if self._num_received > self._num_taken:
            self._account.take(self._num_received - self._num_taken)
            self._num_taken = self._num_received
        late_s = time.monotonic() - self._started_s - PATIENCE_S
        if late_s > 0 and self._num_received < late_s * LEAST_BYTES_PER_S:
            raise BodyRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body arrives at less than {LEAST_BYTES_PER_S} bytes per second",
            )


def _announced(scope: Scope) -> int:
    """Return the bytes that Content-Length announces, or 0 if it is absent. Raises BodyRefused."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > MAX_LENGTH_DIGITS:
                raise BodyRefused(
                    HTTPStatus.BAD_REQUEST,
                    f"Content-Length: {value!r} is not accepted; accepted: a number of bytes",
                )
            return int(value)
    return 0


def _check(num_bytes: int, bound: Bound, scope: Scope) -> None:
    """Raise BodyRefused (413) if the body is larger than its bound."""
    if num_bytes <= bound.max_bytes:
        return
    accepted = f"takes a body of at most {bound.max_bytes} bytes" if bound.max_bytes else "takes no body"
    setting = " (SEAMLESSFLOW_MAX_UPLOAD_BYTES)" if bound.is_upload else ""
    raise BodyRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{scope['method']} {scope['path']} {accepted}{setting}"
    )


async def _refuse(refusal: BodyRefused, receive: Receive, send: Send) -> None:
    """Send the answer, drop a little more of the body while the client reads it, then close the connection."""
    content = json.dumps(problem_body(refusal.status, refusal.detail)).encode()
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="SeamlessFlow"'))
    await send({"type": "http.response.start", "status": refusal.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    await _drop(receive)
    await send({"type": "http.response.body", "body": b""})


async def _drop(receive: Receive) -> None:
    num_bytes = 0
    try:
        async with asyncio.timeout(LINGER_S):
            while num_bytes < LINGER_BYTES:
                message = await receive()
                num_bytes += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
