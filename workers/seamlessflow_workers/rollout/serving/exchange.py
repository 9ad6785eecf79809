"""One request to an engine and its answer, over bare ASGI.

It takes the scope of a request and returns what routes read of it; a route returns an `Answer`, or streams through the
request's `Reply`. Invariant: a client that leaves cancels what still works for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from seamlessflow.runtime.http.departure import departure_of

JSON = "application/json"
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    body: bytes = b""
    status: int = HTTPStatus.OK
    content_type: str = JSON


class Reply:
    """The answer of one request: sent whole, or begun, written and ended. `headers` go before those of the answer."""

    def __init__(self, send: Send, headers: Headers = ()) -> None:
        self._send = send
        self._headers = headers

    async def whole(self, answer: Answer) -> None:
        await self.begin(answer.content_type, answer.status, (_length(answer.body),))
        await self._send({"type": "http.response.body", "body": answer.body})

    async def begin(
        self, content_type: str, status: int = HTTPStatus.OK, further: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        headers = [*self._headers, (b"content-type", content_type.encode()), *further]
        await self._send({"type": "http.response.start", "status": int(status), "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a chunk; wait while the client has yet to read those before."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data})


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    query: Mapping[str, list[str]]
    reply: Reply

    def asked(self, name: str, otherwise: str) -> str:
        """Return a parameter of the query."""
        return self.query.get(name, [otherwise])[0]


Handler = Callable[[Request], Awaitable[Answer | None]]  # None: the route has streamed its answer


def query_of(scope: Scope) -> Mapping[str, list[str]]:
    raw = scope["query_string"]
    return parse_qs(raw.decode("latin-1"), keep_blank_values=True) if raw else {}


async def while_connected(scope: Scope, work: Awaitable[None]) -> None:
    """Await `work`, which is cancelled if the client leaves."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    try:
        with departure_of(scope).awaited(leave):
            await work
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()


def _length(body: bytes) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % len(body)
