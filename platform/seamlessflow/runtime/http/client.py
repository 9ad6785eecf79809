"""Client connections of HTTP/1.1: each takes one request at a time and gives its answer as it arrives.

`HttpConnections.take` returns an idle connection, or a new one; the caller asks, reads and gives it back. Nothing here
needs a task: a request is one write, and its reader waits for the bytes themselves or is called when they come. An
answer has a length or comes in chunks, and redirects are answers like any other. Invariants: a connection whose answer
was not read to its end is closed when it is given back; one that was idle for `idle_s`, or that its server closed or
wrote to meanwhile, is not used again; at most MAX_UNREAD_BYTES and one receive buffer of an answer wait to be read.
"""

import asyncio
from collections.abc import Callable

import httptools

from seamlessflow.runtime.http.heads import Address
from seamlessflow.runtime.http.limits import MAX_HEAD_BYTES

CONNECT_TIMEOUT_S = 5.0
MAX_UNREAD_BYTES = 2 << 20
MAX_IDLE = 1024  # of one pool and address


class Disconnected(ConnectionError):
    """The server closed the connection before its answer was complete, or its answer is none of HTTP/1.1."""


class Silent(TimeoutError):
    """The server sent nothing for too long."""


class HttpConnection(asyncio.Protocol):
    """Idle ⇄ asked → closed. `status` is 0 until the head of the answer has arrived.

    Names of `headers` are in lower case. `listener` is called after each arrival, and after the end of the connection;
    with one, no task may wait in `head`, `read_some` or `read_all`.
    """

    def __init__(self, address: Address, peer: str) -> None:
        self.address = address
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.idle_since_s = 0.0
        self.listener: Callable[[], None] | None = None
        self.error: Exception | None = None
        self.is_complete = False
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._news: asyncio.Future[None] | None = None
        self._unread: list[bytes] = []
        self._num_unread = self._num_head_bytes = 0
        self._is_asked = self._may_stay = self._is_paused = self._is_closed = False
        self._silence: asyncio.TimerHandle | None = None
        self._silence_s = self._arrived_s = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether it can take a request: it is open, and its last answer was read to its end."""
        return not (self._is_closed or self._is_asked or self._transport.is_closing())

    def ask(self, request: bytes, *, silence_s: float | None) -> None:
        """Send a whole request, head and body. The answer ends with Silent after `silence_s` without a byte."""
        self.status, self._num_head_bytes = 0, 0
        self._is_asked, self.is_complete = True, False
        if silence_s is not None:
            self._silence_s, self._arrived_s = silence_s, self._loop.time()
            self._silence = self._loop.call_later(silence_s, self._look)
        self._transport.write(request)

    async def head(self) -> int:
        """Return the status once it has arrived. Raises OSError and the error that `fail` was given."""
        while not self.status:
            await self._wait()
        return self.status

    async def read_some(self) -> bytes:
        """Return what has arrived of the body since the last call; b"" at its end. Raises as `head`."""
        while not self._unread:
            if self.is_complete:
                self._answered()
                return b""
            await self._wait()
        return self._taken()

    async def read_all(self) -> bytes:
        """Return the whole body. Raises as `head`."""
        chunks = []
        while not self.is_complete:
            chunks += self._unread
            self._forget_unread()
            await self._wait()
        chunks.append(self.take_arrived())
        return b"".join(chunks)

    def take_arrived(self) -> bytes:
        """Return what has arrived of the body since the last call, without waiting; b"" if that is nothing."""
        taken = self._taken()
        if self.is_complete:
            self._answered()
        return taken

    def fail(self, error: Exception) -> None:
        """End the answer with this error; nothing that has arrived is read any more."""
        self.is_complete = False
        self._forget_unread()
        self.error = error
        self.close()
        self._wake()

    def close(self) -> None:
        self._stop_timer()
        self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._stop_timer()
        if self.error is None:
            self.error = exc or Disconnected(f"{self._peer} closed the connection")
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self._is_asked or self.is_complete:
            self._transport.abort()  # bytes without a request
            return
        self._arrived_s = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(Disconnected(f"{self._peer} does not speak HTTP: {error}"))
            return
        if not self.status and self._is_head_too_large(len(data)):
            return
        if self._num_unread > MAX_UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_begin(self) -> None:
        self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self.is_complete:
            raise ValueError("a second answer follows")
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0  # the answer follows an informational one

    def on_body(self, body: bytes) -> None:
        self._unread.append(body)
        self._num_unread += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete, self._may_stay = True, self._parser.should_keep_alive()

    async def _wait(self) -> None:
        if self.error is not None:
            raise self.error
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _wake(self) -> None:
        if self.listener is not None:
            self.listener()
        elif self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _is_head_too_large(self, num_bytes: int) -> bool:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes <= MAX_HEAD_BYTES:
            return False
        self.fail(Disconnected(f"{self._peer} sent a head of more than {MAX_HEAD_BYTES} bytes"))
        return True

    def _taken(self) -> bytes:
        taken = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._forget_unread()
        return taken

    def _forget_unread(self) -> None:
        self._unread, self._num_unread = [], 0
        if self._is_paused and not self._transport.is_closing():
            self._is_paused, self._arrived_s = False, self._loop.time()
            self._transport.resume_reading()

    def _answered(self) -> None:
        """Note that the answer was read to its end; the connection may be used again if the server allows it."""
        self._stop_timer()
        self._is_asked = not self._may_stay

    def _look(self) -> None:
        """Fail after too long a silence; the time in which the reader was too slow does not count."""
        left_s = self._silence_s if self._is_paused else self._arrived_s + self._silence_s - self._loop.time()
        if left_s > 0:
            self._silence = self._loop.call_later(left_s, self._look)
        else:
            self.fail(Silent(f"{self._peer} sent nothing for {self._silence_s:g} s"))

    def _stop_timer(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class HttpConnections:
    """Knows all connections of one kind. The one that was given back last is taken first.

    `peer` names the servers in errors. `idle_s` must be less than the time after which they close idle connections.
    """

    def __init__(self, *, peer: str, idle_s: float) -> None:
        self._peer = peer
        self._idle_s = idle_s
        self._taken: set[HttpConnection] = set()
        self._idle: dict[Address, list[HttpConnection]] = {}
        self._is_closed = False
        self._sweeping: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connections in (self._taken, *self._idle.values()):
            for connection in list(connections):
                connection.close()
        self._idle.clear()

    async def take(self, address: Address) -> HttpConnection:
        """Return a connection that has no other user. Raises OSError."""
        return self.take_idle(address) or await self.connect(address)

    def take_idle(self, address: Address) -> HttpConnection | None:
        connections = self._idle.get(address)
        oldest_s = asyncio.get_running_loop().time() - self._idle_s
        while connections:
            connection = connections.pop()
            if connection.is_usable and connection.idle_since_s > oldest_s:
                self._taken.add(connection)
                return connection
            connection.close()
        return None

    async def connect(self, address: Address) -> HttpConnection:
        """Return a new connection. Raises OSError, as TimeoutError after CONNECT_TIMEOUT_S."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connected(address)
        except TimeoutError as error:
            message = f"{self._peer} accepted no connection within {CONNECT_TIMEOUT_S:g} s"
            raise TimeoutError(message) from error
        if self._is_closed:
            connection.close()
            raise Disconnected("this client was closed")
        self._taken.add(connection)
        return connection

    def give_back(self, connection: HttpConnection) -> None:
        self._taken.discard(connection)
        idle = self._idle.setdefault(connection.address, [])
        if self._is_closed or not connection.is_usable or len(idle) >= MAX_IDLE:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._idle_s, self._sweep, loop)

    async def _connected(self, address: Address) -> HttpConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: HttpConnection(address, self._peer),
            address.host,
            address.port,
            ssl=address.is_encrypted or None,
        )
        return connection

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for `idle_s`, and look again while there are others."""
        oldest_s = loop.time() - self._idle_s
        for address, connections in list(self._idle.items()):
            for connection in connections:
                if connection.idle_since_s <= oldest_s:
                    connection.close()
            self._idle[address] = [one for one in connections if one.is_usable]
            if not self._idle[address]:
                del self._idle[address]
        self._sweeping = loop.call_later(self._idle_s, self._sweep, loop) if self._idle else None
