"""The protocol of one connection to an HTTP server: uvicorn's, with the deadlines and limits that uvicorn lacks.

A connection whose head or body does not arrive in time gets 408, one with too large a head 431, one too many 503; a
client that reads nothing of its answer is cut off, which the application sees as a client that left. Once half of the
connections are taken, a client with more than an equal fraction of that half gets 429 for a further one; the credential
of a connection's first request identifies its client. Invariant: whatever a client does, its connection ends, and until
then it takes at most one receive buffer and one write buffer; no client's connections keep those of others out.

Time is counted in rounds of this process, so neither a stopped process nor a suspended machine uses up a deadline.
"""

import asyncio
from collections import Counter
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from seamlessflow.core.admission.fair_queue import is_full_for
from seamlessflow.runtime.http.departure import Departure, departure_add
from seamlessflow.runtime.http.limits import MAX_HEAD_BYTES, MIN_BODY_RATE, HttpLimits

ROUND_S = 1.0
MAX_PIPELINED = 8
LINGER_S = 5.0  # for a client that gets its answer before it has sent its whole body
CREDENTIALS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"cookie")
RETRIED = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
MIN_READ_BYTES = 64 << 10  # how much of an answer the client must read within `drain_s`


class _Waits(Enum):
    """What a connection waits for."""

    # Not for the client: the application works, or the connection is idle and has its own time-out.
    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    LINGER = auto()  # the rest of a body that is not needed
    DRAIN = auto()  # the client, to read


class _Doorkeeper:
    """Checks every connection once a round, as long as there are any."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.connections: set[_LimitedProtocol] = set()
        self._num_of_client: Counter[bytes] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: "_LimitedProtocol") -> None:
        self.connections.add(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(ROUND_S, self._round, connection.loop)

    def admit(self, client: bytes) -> bool:
        """Count a connection of a client, unless it has too many."""
        self._num_of_client[client] += 1
        is_full = is_full_for(
            num_of_job=self._num_of_client[client] - 1,
            num_in_all=len(self.connections) - 1,
            num_jobs=len(self._num_of_client),
            limit=max(1, self.limits.max_connections // 2),
        )
        if is_full:
            self._forget(client)
        return not is_full

    def leave(self, connection: "_LimitedProtocol") -> None:
        self.connections.discard(connection)
        if connection.client_key is not None:
            self._forget(connection.client_key)

    def _forget(self, client: bytes) -> None:
        self._num_of_client[client] -= 1
        if not self._num_of_client[client]:
            del self._num_of_client[client]

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self.connections):
            connection.look()
        self._timer = loop.call_later(ROUND_S, self._round, loop) if self.connections else None


class JoinedWrites:
    """The transport of one answer, as far as uvicorn uses it. It sends the head with the bytes that follow.

    The server writes an answer's head and body apart; together they are one segment and one system call. A head that
    nothing follows in the same round of the event loop is sent alone.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._has_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._has_begun:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)
        else:
            self._has_begun, self._head = True, data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class _LimitedProtocol(HttpToolsProtocol):
    """One connection. `limited_protocol` gives the class its doorkeeper."""

    keeper: _Doorkeeper

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_refused = False
        self._num_requests = 0
        self._num_head_bytes = 0
        self._num_body_bytes = 0
        self._seen: tuple[_Waits, int] = (_Waits.NOTHING, 0)
        self._waited_s = 0.0
        self._num_unread_bytes = 0  # unread bytes of the answer when its client last read
        self._departure = Departure()
        self.client_key: bytes | None = None  # None: it has sent no request yet

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        is_full = len(self.connections) > self.keeper.limits.max_connections
        self.keeper.watch(self)
        if is_full:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The server has too many connections; try again.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.keeper.leave(self)
        super().connection_lost(exc)
        self._departure.happened()

    def handle_websocket_upgrade(self) -> None:
        if self._is_refused:
            return
        self.keeper.leave(self)  # from here on the socket's own protocol keeps time
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        num_requests = self._num_requests
        is_body = (request := self._request) is not None and request.more_body
        super().data_received(data)
        if len(self.pipeline) > MAX_PIPELINED:
            self._is_refused = True
            self.transport.abort()
        if is_body or num_requests != self._num_requests:
            self._num_head_bytes = (
                0  # if the next head began in this chunk, counting begins with the next chunk
            )
            return
        self._num_head_bytes += len(data)
        if self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The head of the request is too large.")

    def on_headers_complete(self) -> None:
        self._num_requests += 1
        self._num_body_bytes = 0
        if self.client_key is None and not self._is_admitted():
            return
        before = self._request
        super().on_headers_complete()
        departure_add(self.scope, self._departure)  # type: ignore[arg-type]  # a typed dictionary is no mapping of Any
        if (request := self._request) is not None and request is not before:
            request.transport = JoinedWrites(self.transport, self.loop)  # type: ignore[assignment]

    def _is_admitted(self) -> bool:
        client = b"\n".join(value for name, value in self.headers if name in CREDENTIALS)
        if self.keeper.admit(client):
            self.client_key = client
            return True
        message = "This client has too many connections; send the request again on one that it has."
        self._refuse(HTTPStatus.TOO_MANY_REQUESTS, message)
        return False

    def on_body(self, body: bytes) -> None:
        if self._is_refused:
            return
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        super().on_message_complete()
        if (request := self._request) and request.response_complete:
            request.more_body = False  # answered early, but complete now: the connection may be used again

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The newest request; uvicorn declares that there always is one."""
        return self.cycle

    def look(self) -> None:
        """End the connection if it has waited for too long. Called once a round."""
        waits = self._waits()
        seen = (waits, self._num_requests)
        if seen != self._seen or waits is _Waits.NOTHING or self._has_read():
            self._seen, self._waited_s = seen, 0.0
            self._num_unread_bytes = self.transport.get_write_buffer_size()
            return
        self._waited_s += ROUND_S
        limits = self.keeper.limits
        if waits is _Waits.HEAD and self._waited_s > limits.head_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The head of the request did not arrive in time.")
        elif waits is _Waits.BODY and self._waited_s > self._body_allowance_s():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body of the request did not arrive in time.")
        elif waits is _Waits.LINGER and self._waited_s > LINGER_S:
            self.transport.close()
        elif waits is _Waits.DRAIN and self._waited_s > limits.drain_s:
            self.transport.abort()

    def _waits(self) -> _Waits:
        if self.transport.is_closing() or self.flow.write_paused:
            return _Waits.DRAIN
        if self._is_awaiting_head():
            return _Waits.HEAD if self.timeout_keep_alive_task is None else _Waits.NOTHING
        request = self._request
        if request is None or not request.more_body:
            return _Waits.NOTHING
        if request.response_complete:
            return _Waits.LINGER
        return _Waits.NOTHING if self.flow.read_paused else _Waits.BODY

    def _is_awaiting_head(self) -> bool:
        request = self._request
        return request is None or (request.response_complete and not request.more_body)

    def _has_read(self) -> bool:
        """Whether a client that we wait for has read some of its answer in the meantime."""
        return (
            self._seen[0] is _Waits.DRAIN
            and self.transport.get_write_buffer_size() <= self._num_unread_bytes - MIN_READ_BYTES
        )

    def _body_allowance_s(self) -> float:
        return self.keeper.limits.body_s + self._num_body_bytes / MIN_BODY_RATE

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer if an answer is still possible, and close."""
        self._is_refused = True
        if (request := self._request) and request.response_started and not request.response_complete:
            self.transport.abort()
            return
        content_type, body = self.keeper.limits.refusal(status, message)
        head = [STATUS_LINE[status], b"content-type: ", content_type, b"\r\n"]
        head += [b"retry-after: 1\r\n"] if status in RETRIED else []
        head += [b"content-length: ", str(len(body)).encode(), b"\r\nconnection: close\r\n\r\n"]
        self.transport.write(b"".join(head) + body)
        self.transport.close()


def limited_protocol(limits: HttpLimits) -> type[asyncio.Protocol]:
    """Return the `http` of a uvicorn configuration, whose connections have these limits in common."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"keeper": _Doorkeeper(limits)})
