"""Passes one request on to the engine, and the engine's answer back to the gateway's connection.

A whole answer leaves when it is complete, head and body in one write. Of a stream, what arrives together leaves
together, as one chunk. Invariants: an answer that the engine breaks off breaks off here too, so nobody takes it for a
whole one; a gateway that reads slowly slows its engine's stream down, and one that leaves takes its request from the
engine.
"""

import asyncio
import functools
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from seamlessflow.runtime.http_connections import Address, HttpConnection, HttpConnections
from seamlessflow_workers.rollout.front_connection import FrontConnection, Request

EVENT_STREAM = b"text/event-stream"
MAX_ANSWER_BYTES = 256 << 20  # of one that is passed on as a whole
_LAST_CHUNK = b"0\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Relay:
    """Begun → asked → (streaming) → over; `on_over` is called once."""

    def __init__(
        self,
        connections: HttpConnections,
        address: Address,
        client: FrontConnection,
        *,
        version: bytes,
        on_over: Callable[[], None],
    ) -> None:
        self._connections = connections
        self._address = address
        self._client = client
        self._version = version
        self._on_over = on_over
        self._engine: HttpConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._parts: list[bytes] = []
        self._num_bytes = 0
        self._is_streaming = False

    def begin(self, request: Request) -> None:
        self._client.on_left = self._leave
        message = _message(request.method, request.target, request.header(b"content-type"), request.body)
        engine = self._connections.take_idle(self._address)
        if engine is not None:
            self._ask(engine, message)
        else:
            self._connecting = asyncio.create_task(self._connect(message))

    async def _connect(self, message: bytes) -> None:
        try:
            engine = await self._connections.connect(self._address)
        except OSError:
            self._lose_engine()
        else:
            self._ask(engine, message)

    def _ask(self, engine: HttpConnection, message: bytes) -> None:
        self._engine = engine
        engine.listener = functools.partial(self._take_news, engine)
        engine.ask(message, silence_s=None)  # gateways know how long they wait

    def _take_news(self, engine: HttpConnection) -> None:
        if self._is_streaming:
            self._pass_on(engine)
        elif engine.status and _is_stream(engine):
            self._begin_stream(engine)
        elif engine.status and not (engine.error and not engine.is_complete):
            self._collect(engine)
        elif engine.error:
            self._lose_engine()

    def _collect(self, engine: HttpConnection) -> None:
        is_complete, part = engine.is_complete, engine.take_arrived()
        self._num_bytes += len(part)
        self._parts.append(part)
        if is_complete:
            body = part if len(self._parts) == 1 else b"".join(self._parts)
            self._end(
                answer_bytes(
                    engine.status, _content_type(engine), body, version=self._version, closes=self._closes
                )
            )
        elif self._num_bytes > MAX_ANSWER_BYTES:
            self._lose_engine()

    def _begin_stream(self, engine: HttpConnection) -> None:
        self._is_streaming = True
        self._client.on_readable = functools.partial(self._pass_on, engine)
        head = _head(engine.status, _content_type(engine), self._version, self._closes)
        self._pass_on(engine, before=head + b"Transfer-Encoding: chunked\r\n\r\n")

    def _pass_on(self, engine: HttpConnection, *, before: bytes = b"") -> None:
        """Write what has arrived of a stream, unless the client has yet to read what was written before."""
        if self._client.is_slow and not before:
            return
        is_complete, events = engine.is_complete, engine.take_arrived()
        data = before + _chunk(events) if events else before
        if is_complete:
            self._end(data + _LAST_CHUNK)
            return
        if data:
            self._client.write(data)
        if engine.error:
            # The head is already sent: a connection that ends without its last chunk tells the gateway what happened.
            self._client.close()
            self._release()

    def _lose_engine(self) -> None:
        self._end(refusal_bytes(HTTPStatus.BAD_GATEWAY, "engine_lost", closes=self._closes))

    def _end(self, data: bytes) -> None:
        """Count the request out, and give its client the answer or the rest of it."""
        self._release()
        self._client.answer(data)

    def _leave(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._release()

    def _release(self) -> None:
        if self._engine is not None:
            self._engine.listener = None
            self._connections.give_back(self._engine)
            self._engine = None
        self._on_over()

    @property
    def _closes(self) -> bool:
        return not self._client.keeps_alive


def answer_bytes(
    status: int, content_type: bytes, body: bytes, *, version: bytes = b"", closes: bool = False
) -> bytes:
    """Return a whole answer."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (_head(status, content_type, version, closes), len(body), body)


def refusal_bytes(
    status: HTTPStatus, code: str, *, served_version: int | None = None, closes: bool = False
) -> bytes:
    content: dict[str, str | int] = {"code": code}
    if served_version is not None:
        content["served_version"] = served_version
    return answer_bytes(status, b"application/json", msgspec.json.encode(content), closes=closes)


@functools.lru_cache(maxsize=256)
def _head(status: int, content_type: bytes, version: bytes, closes: bool) -> bytes:
    """Return the head of an answer, but for how its body ends."""
    lines = [
        f"HTTP/1.1 {status:d} {_PHRASES.get(status, '')}".encode(),
        *([b"X-SeamlessFlow-Policy-Version: " + version] if version else []),
        b"Content-Type: " + content_type,
        *([b"Connection: close"] if closes else []),
        b"",
    ]
    return b"\r\n".join(lines)


def _message(method: bytes, target: bytes, content_type: bytes, body: bytes) -> bytes:
    return _request_head(method, target.partition(b"?")[0], content_type) % len(body) + body


@functools.lru_cache(maxsize=64)
def _request_head(method: bytes, path: bytes, content_type: bytes) -> bytes:
    """Return the head of a request to the engine, with `%d` for the length of its body."""
    head = b"%b %b HTTP/1.1\r\nHost: engine\r\nContent-Type: %b" % (
        method,
        path,
        content_type or b"application/json",
    )
    return head.replace(b"%", b"%%") + b"\r\nContent-Length: %d\r\n\r\n"


def _is_stream(engine: HttpConnection) -> bool:
    return _content_type(engine).partition(b";")[0].strip().lower() == EVENT_STREAM


def _content_type(engine: HttpConnection) -> bytes:
    return engine.headers.get(b"content-type", b"application/octet-stream")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
