"""Passes a request on to the gateway that answers it, and its answer back as it comes.

Clients keep their address, whichever gateway lives there now; nothing redirects them. If the other
gateway dies before the head of its answer, the request is assigned again: elsewhere, or here once its epoch has ended.
If it may have received the request, the repeat is marked as a retry, so a turn that it recorded is not sampled again.
After the head, the client's connection breaks as if it had been the other gateway's own.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.gateways.membership import LEASE_S, Membership
from seamlessflow.data_plane.routes.http import (
    BodyBudget,
    Receive,
    RequestBody,
    Scope,
    Send,
    wait_disconnect,
)
from seamlessflow.data_plane.routes.placing import (
    FORWARDED,
    PHASE_PATHS,
    Placing,
    gateway_away,
    needs_holder,
    num_forwards,
)

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
PATIENCE_S = LEASE_S + 5.0  # until a gateway that died has lost its epoch, and another one has read that
RETRY_S = 0.2
RETRY_HEADER = b"x-stainless-retry-count"
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"host",
        b"content-length",
    }
)
_NOT_ANSWERED = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"})
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)

Route = Callable[[Scope, Receive, Send], Awaitable[None]]


class PeerAway(Exception):
    """The other gateway did not answer. `has_received`: it may have received the request."""

    def __init__(self, reason: str, *, has_received: bool) -> None:
        super().__init__(reason)
        self.has_received = has_received


class Request:
    """A request whose body may be read before it is decided who answers it; it can then be sent again."""

    def __init__(self, scope: Scope, receive: Receive, body: RequestBody) -> None:
        self.scope = scope
        self._receive = receive
        self._received = body
        self._body: bytes | None = None
        self._is_replayed = False

    async def body(self) -> bytes:
        """Read the whole body. Raises ApiError (413, 503) and ClientGone."""
        if self._body is None:
            self._body = await self._received.read(self.scope, self._receive)
        return self._body

    async def receive(self) -> Any:
        """Give the body again if it was read, and then whatever the client sends."""
        if self._body is None or self._is_replayed:
            return await self._receive()
        self._is_replayed = True
        self._received.release()  # its next reader counts it
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def gone(self) -> None:
        """Return once the client has disconnected."""
        await wait_disconnect(self._receive)

    def mark_retry(self) -> None:
        """Mark the request as a retry, because it may have been answered already."""
        kept = [(name, value) for name, value in self.scope["headers"] if name != RETRY_HEADER]
        self.scope["headers"] = [*kept, (RETRY_HEADER, b"1")]


class Forwarding:
    """One per process. `route` answers requests here."""

    def __init__(self, placing: Placing, membership: Membership, bodies: BodyBudget, route: Route) -> None:
        self._placing = placing
        self._membership = membership
        self._bodies = bodies
        self._route = route
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=_TIMEOUT,
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        await self._http.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.body() as body:
            request = Request(scope, receive, body)
            peer = await self._placing.place(scope, request.body)
            if peer is not None:
                peer = await self._pass_on(request, peer, send)
            if peer is not None:
                return
            await self._route(scope, request.receive, send)

    async def _pass_on(self, request: Request, peer: str, send: Send) -> str | None:
        """Return who answered, or None if the request is answered here after all. Raises ApiError (503)."""
        body = await request.body()
        deadline_s: float | None = None
        while deadline_s is None or time.monotonic() < deadline_s:
            try:
                await self._answered_by(request, body, peer, send)
            except PeerAway as away:
                log.warning("the gateway %s did not answer: %s", peer, away)
                deadline_s = deadline_s or time.monotonic() + PATIENCE_S
                if away.has_received:
                    request.mark_retry()
            else:
                return peer
            if not needs_holder(request.scope["path"]):
                return None
            await asyncio.sleep(RETRY_S)
            again = await self._placing.place(request.scope, request.body)
            if again is None:
                return None
            peer = again
        raise gateway_away()

    async def _answered_by(self, request: Request, body: bytes, peer: str, send: Send) -> None:
        """Let `peer` answer; stop if the client leaves. Raises PeerAway."""
        work = asyncio.create_task(self._relay(request.scope, body, peer, send))
        gone = asyncio.create_task(request.gone())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(work, gone)
        if not work.cancelled():
            work.result()

    async def _relay(self, scope: Scope, body: bytes, peer: str, send: Send) -> None:
        response = await self._head(scope, body, peer)
        metrics.FORWARDED.labels("phase" if scope["path"].startswith(PHASE_PATHS) else "session").inc()
        async with response:
            await send(
                {"type": "http.response.start", "status": response.status, "headers": _answered(response)}
            )
            try:
                async for chunk in response.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except (aiohttp.ClientError, OSError) as error:
                log.warning("the gateway %s died in mid-answer: %s", peer, error)
                return  # without an end, the server closes the client's connection
        await send({"type": "http.response.body", "body": b""})

    async def _head(self, scope: Scope, body: bytes, peer: str) -> aiohttp.ClientResponse:
        """Send the request and wait for the head of the answer, but not longer than `peer` lives. Raises PeerAway.

        A port that its launcher keeps open takes connections even while no process answers them.
        """
        asking = asyncio.create_task(self._ask(scope, body, peer))
        gone = asyncio.create_task(self._membership.gone(peer))
        try:
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.add_done_callback(_closed)
            raise
        finally:
            await _cancelled(asking, gone)
        if asking.cancelled():
            raise PeerAway("its epoch has ended", has_received=True)
        return asking.result()

    async def _ask(self, scope: Scope, body: bytes, peer: str) -> aiohttp.ClientResponse:
        query = b"?" + scope["query_string"] if scope.get("query_string") else b""
        try:
            return await self._http.request(
                scope["method"],
                f"{peer}{scope['path']}{query.decode('latin-1')}",
                data=body,
                headers=_passed_headers(scope),
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise PeerAway(f"{type(error).__name__}: {error}", has_received=False) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PeerAway(f"{type(error).__name__}: {error}", has_received=True) from error


def _closed(asking: "asyncio.Task[aiohttp.ClientResponse]") -> None:
    """Close an answer that came too late."""
    if not asking.cancelled() and asking.exception() is None:
        asking.result().close()


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel those of the tasks that are not done, and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _passed_headers(scope: Scope) -> list[tuple[str, str]]:
    passed = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in _HOP_BY_HOP and name != FORWARDED
    ]
    return [*passed, (FORWARDED.decode(), str(num_forwards(scope) + 1))]


def _answered(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower(), value) for name, value in response.raw_headers if name.lower() not in _NOT_ANSWERED
    ]
