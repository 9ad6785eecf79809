"""One connection of a gateway to a front: reads requests of HTTP/1.1, and writes each answer whole or in parts.

It takes bytes and gives each complete request to its `Server`, one at a time and in their order; the answer comes back
by `answer`, or by `write` and a last `answer`. Nothing here needs a task. Invariants: how the bytes are split changes
no answer; a request that is malformed, or that another program might read differently, reaches nobody: it is refused
and the connection ends; whatever a client does, its connection ends, and until then it holds at most one request,
one receive buffer and one write buffer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Protocol

import httptools

MAX_CONNECTIONS = 4096  # of one front
MAX_HEAD_BYTES = 64 << 10
HEAD_S = 10.0
BODY_S = 30.0  # after that, the rate must be at least MIN_BODY_RATE
MIN_BODY_RATE = 16 << 10  # bytes/s
IDLE_S = 75.0
DRAIN_S = 120.0  # for a client to read MIN_READ_BYTES of its answer
MIN_READ_BYTES = 64 << 10
LINGER_S = 5.0  # for a client that is refused before it has sent everything
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# They say where a request ends, whom it is from or what it is about: a second one would leave open which counts.
_ONCE = frozenset(
    {
        *(b"authorization", b"content-length", b"content-type", b"expect", b"host", b"transfer-encoding"),
        *(b"x-seamlessflow-job", b"x-seamlessflow-policy-version"),
    }
)


@dataclass(slots=True, eq=False)
class Request:
    """`refusal` is set if the request may not proceed, whatever its body is; then the body is not kept."""

    method: bytes = b""
    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_last: bool = False  # its connection ends with its answer
    refusal: bytes | None = None

    def header(self, name: bytes) -> bytes:
        return self.headers.get(name, b"")


class Server(Protocol):
    """Whoever answers the requests of all connections."""

    max_body_bytes: int

    def refusal_of(self, request: Request) -> bytes | None:
        """Return the answer to a request that may not proceed, as far as its head tells."""
        ...

    def malformed(self, status: HTTPStatus) -> bytes:
        """Return the answer to what is no request."""
        ...

    def handle(self, connection: "FrontConnection", request: Request) -> None:
        """Answer a request, now or later."""
        ...


class Waits(Enum):
    """What a connection waits for."""

    NOTHING = auto()  # not for its client
    HEAD = auto()
    BODY = auto()
    REQUEST = auto()  # it is idle
    DRAIN = auto()  # the client, to read
    LINGER = auto()


class _Refused(Exception):
    """The request is none that a front takes."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class FrontConnection(asyncio.Protocol):
    """Idle ⇄ receiving → busy → idle, or over: what its client still sends is not read.

    `on_left` is called if the client leaves while its request is answered, `on_readable` when it has read enough of a
    slow answer.
    """

    def __init__(self, server: Server, connections: "set[FrontConnection]") -> None:
        self.on_left: Callable[[], None] | None = None
        self.on_readable: Callable[[], None] | None = None
        self.is_slow = False  # its client has not yet read what was written
        self.is_busy = False
        self._server = server
        self._connections = connections
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()  # the one that arrives, or the next one
        self._parts: list[bytes] = []
        self._waiting: deque[Request] = deque()  # complete
        self._answered = self._request  # the one that is being answered
        self._end: HTTPStatus | None = None  # refuse what follows the waiting requests
        self._is_in_request = self._is_in_body = self._is_progress = False
        self._is_advancing = self._is_paused = self._is_over = self._is_lost = False
        self._num_loose_bytes = self._num_head_bytes = self._num_body_bytes = 0
        self._num_requests = 0
        self._seen: tuple[Waits, int] = (Waits.NOTHING, 0)
        self._waited_s = 0.0
        self._num_unread_bytes = 0

    def answer(self, data: bytes) -> None:
        """Write the answer, or its last part."""
        if self._is_lost:
            return
        self._transport.write(data)
        self.is_busy, self.on_left, self.on_readable = False, None, None
        if self._answered.is_last:
            self._finish()
        elif not self._is_advancing:
            self._advance()

    def write(self, data: bytes) -> None:
        """Write a part of an answer."""
        self._transport.write(data)

    def close(self) -> None:
        """End the connection once what was written has left; within an answer, its client notices what is missing."""
        self._is_over = True
        self.on_left = self.on_readable = None
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection outlives the present answer."""
        return not self._answered.is_last

    def refuse(self, status: HTTPStatus) -> None:
        """Answer with an error, and end the connection."""
        self._transport.write(self._server.malformed(status))
        self._finish()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._connections.add(self)
        if len(self._connections) > MAX_CONNECTIONS:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = self._is_lost = True
        self._connections.discard(self)
        self._waiting.clear()
        if self.on_left is not None:
            self.on_left()
        self.on_left = self.on_readable = None

    def pause_writing(self) -> None:
        self.is_slow = True

    def resume_writing(self) -> None:
        self.is_slow = False
        if self.on_readable is not None:
            self.on_readable()
        elif not self.is_busy and not self._is_over:
            self._advance()

    def data_received(self, data: bytes) -> None:
        if self._is_over or self._end is not None:
            return
        self._is_progress = False
        try:
            self._parser.feed_data(data)
            self._count_loose(len(data))
        except _Refused as error:
            self._end = error.status
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            reason = error.__context__
            self._end = reason.status if isinstance(reason, _Refused) else HTTPStatus.BAD_REQUEST
        if not self.is_busy and not self.is_slow:
            self._advance()
        else:
            self._set_reading()

    def on_message_begin(self) -> None:
        self._is_in_request = True
        self._num_head_bytes = self._num_body_bytes = 0
        self._request = Request()

    def on_url(self, part: bytes) -> None:
        self._count_head(len(part))
        self._request.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if self._is_in_body:
            return  # a trailer: nothing here is decided by those
        name, headers = name.lower(), self._request.headers
        if name in headers and name in _ONCE:
            raise _Refused(HTTPStatus.BAD_REQUEST)
        headers[name] = value.strip(b" \t")

    def on_headers_complete(self) -> None:
        request, parser = self._request, self._parser
        if parser.get_http_version() != "1.1":
            raise _Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if parser.should_upgrade() or not request.header(b"host"):
            raise _Refused(HTTPStatus.BAD_REQUEST)
        if request.header(b"transfer-encoding").lower() not in (b"", b"chunked"):
            raise _Refused(HTTPStatus.NOT_IMPLEMENTED)
        if int(request.header(b"content-length") or 0) > self._server.max_body_bytes:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        request.method = parser.get_method()
        request.is_last = not parser.should_keep_alive()
        request.refusal = self._server.refusal_of(request)
        self._is_in_body = self._is_progress = True
        if expected := request.header(b"expect"):
            self._take_expectation(request, expected)

    def on_body(self, body: bytes) -> None:
        self._is_progress = True
        self._num_body_bytes += len(body)
        if self._num_body_bytes > self._server.max_body_bytes:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._request.refusal is None:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        parts, request = self._parts, self._request
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self._is_in_request = self._is_in_body = False
        self._is_progress = True
        self._waiting.append(request)

    def look(self, round_s: float) -> None:
        """End the connection if it has waited for its client for too long. Called once a round, of `round_s`.

        Time is counted in rounds, so neither a stopped process nor a suspended machine uses up a deadline.
        """
        waits = self._waits()
        seen = (waits, self._num_requests)
        if seen != self._seen or waits is Waits.NOTHING or self._has_read(waits):
            self._seen, self._waited_s = seen, 0.0
            self._num_unread_bytes = self._transport.get_write_buffer_size()
            return
        self._waited_s += round_s
        if self._waited_s <= self._limit_s(waits):
            return
        if waits in (Waits.HEAD, Waits.BODY):
            self.refuse(HTTPStatus.REQUEST_TIMEOUT)
        elif waits is Waits.DRAIN:
            self.abort()
        else:
            self.close()

    def _advance(self) -> None:
        """Give waiting requests to the server, until one of them is not answered at once."""
        self._is_advancing = True
        while self._waiting and not (self.is_busy or self.is_slow or self._is_over):
            request = self._answered = self._waiting.popleft()
            self._num_requests += 1
            self.is_busy = True
            if request.refusal is not None:
                self.answer(request.refusal)
            else:
                self._server.handle(self, request)
        self._is_advancing = False
        if self._end is not None and not (self.is_busy or self.is_slow or self._is_over):
            self.refuse(self._end)
        self._set_reading()

    def _set_reading(self) -> None:
        """Read on, unless something that was read already has to wait."""
        is_blocked = self.is_slow or (self.is_busy and self._is_in_request)
        is_paused = not self._is_over and (is_blocked or bool(self._waiting) or self._end is not None)
        if is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _finish(self) -> None:
        """Say that nothing follows. The rest of what its client sends is dropped, so that it can read its answer."""
        self._is_over = True
        self._waiting.clear()
        self._set_reading()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def _take_expectation(self, request: Request, expected: bytes) -> None:
        if expected.lower() != b"100-continue":
            raise _Refused(HTTPStatus.EXPECTATION_FAILED)
        if request.refusal is not None:
            request.is_last = True  # its client may send the body all the same, or may not
            self._waiting.append(request)
            raise _Refused(HTTPStatus.EXPECTATION_FAILED)
        if not self.is_busy and not self._waiting:
            self._transport.write(_CONTINUE)

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _count_loose(self, num_bytes: int) -> None:
        """Count bytes that bring neither a whole head nor a body: those of a header that does not end."""
        self._num_loose_bytes = 0 if self._is_progress else self._num_loose_bytes + num_bytes
        if self._num_loose_bytes > 2 * MAX_HEAD_BYTES:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _waits(self) -> Waits:
        if self._transport.is_closing() or self.is_slow:
            return Waits.DRAIN
        if self._is_over:
            return Waits.LINGER
        if self.is_busy:
            return Waits.NOTHING
        if self._is_in_body:
            return Waits.BODY
        is_begun = self._is_in_request or self._num_loose_bytes or not self._num_requests
        return Waits.HEAD if is_begun else Waits.REQUEST

    def _limit_s(self, waits: Waits) -> float:
        if waits is Waits.BODY:
            return BODY_S + self._num_body_bytes / MIN_BODY_RATE
        return {Waits.HEAD: HEAD_S, Waits.REQUEST: IDLE_S, Waits.DRAIN: DRAIN_S}.get(waits, LINGER_S)

    def _has_read(self, waits: Waits) -> bool:
        """Whether a client that we wait for has read a part of its answer in the meantime."""
        if waits is not Waits.DRAIN:
            return False
        return self._transport.get_write_buffer_size() <= self._num_unread_bytes - MIN_READ_BYTES
