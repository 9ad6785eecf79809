"""The door of the web process: it stores no body before it knows that the route takes one.

Takes an ASGI application and returns it behind bounds. It refuses a body that is announced too large at once, and one
that comes in chunks as soon as it grows too large. It refuses uploads of unknown callers before it reads them. The
server's protocol ends bodies that come too slowly, and drops the rest of a body that is refused. Invariant: at any
moment the process buffers no more bytes of bodies than the two accounts allow.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from django.conf import settings

from seamlessflow.control_plane.common.database.availability import AWAY, DATABASE_AWAY, RETRY_AFTER_S
from seamlessflow.control_plane.common.http.body_bounds import Bound, body_bound
from seamlessflow.control_plane.common.http.problems import CONTENT_TYPE, problem_body
from seamlessflow.runtime.http.bodies import (
    Body,
    BodyAccount,
    BodyRefused,
    ClientGone,
    Message,
    Receive,
    announced_bytes,
)
from seamlessflow.runtime.http.limits import MAX_WEB_BODIES_BYTES, MAX_WORKER_BYTES

Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class BodyGate:
    """The application behind bounds. `is_known` decides by a request's head alone whether its sender may upload."""

    def __init__(self, application: Application, *, is_known: Callable[[Scope], Awaitable[bool]]) -> None:
        self._application = application
        self._is_known = is_known
        self._small = BodyAccount(max_body_bytes=MAX_WORKER_BYTES, max_total_bytes=MAX_WEB_BODIES_BYTES)
        self._uploads = BodyAccount(
            max_body_bytes=settings.MAX_UPLOAD_BYTES, max_total_bytes=settings.MAX_UPLOADS_IN_FLIGHT_BYTES
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bound = body_bound(
            method=scope["method"], path=scope["path"], max_upload_bytes=settings.MAX_UPLOAD_BYTES
        )
        try:
            with (self._uploads if bound.is_upload else self._small).body(bound.max_bytes) as body:
                await self._begin(scope, bound, body)
                await self._application(scope, _counted(receive, body), send)
        except ClientGone:
            return
        except DATABASE_AWAY:  # raised while looking up who uploads
            away = BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, AWAY, retry_after_s=RETRY_AFTER_S)
            await _refuse(away, send)
        except BodyRefused as refusal:
            await _refuse(refusal, send, detail=_limit(scope, bound, refusal))

    async def _begin(self, scope: Scope, bound: Bound, body: Body) -> None:
        """Refuse a body by its request's head, or reserve an upload's bytes. Raises BodyRefused."""
        num_announced = announced_bytes(scope)
        body.check(num_announced)
        if bound.is_upload:
            if not await self._is_known(scope):
                message = "uploads need an API token or a signed-in browser"
                raise BodyRefused(HTTPStatus.UNAUTHORIZED, message)
            body.reserve(num_announced)


def _counted(receive: Receive, body: Body) -> Receive:
    async def counted() -> Message:
        message = await receive()
        body.count(len(message.get("body", b"")))
        return message

    return counted


def _limit(scope: Scope, bound: Bound, refusal: BodyRefused) -> str:
    """Return the sentence of a refusal; that of a body which is too large names the route's bound."""
    if refusal.status is not HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return refusal.detail
    accepted = f"takes a body of at most {bound.max_bytes} bytes" if bound.max_bytes else "takes no body"
    setting = " (SEAMLESSFLOW_MAX_UPLOAD_BYTES)" if bound.is_upload else ""
    return f"{scope['method']} {scope['path']} {accepted}{setting}"


async def _refuse(refusal: BodyRefused, send: Send, *, detail: str | None = None) -> None:
    content = json.dumps(problem_body(refusal.status, detail or refusal.detail)).encode()
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(content)).encode())]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    if refusal.status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="SeamlessFlow"'))
    await send({"type": "http.response.start", "status": refusal.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": content})
