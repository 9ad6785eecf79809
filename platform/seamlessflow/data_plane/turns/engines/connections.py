"""Connections to engines: each takes one request at a time and gives its answer as it arrives.

`EngineConnections.take` returns an idle connection, or a new one; the caller asks, reads and gives it back. Nothing
here needs a task: a request is one write, and its reader waits for the bytes themselves. An answer has a length or
comes in chunks, and redirects are answers like any other. Invariants: a connection whose answer was not read to its end
is closed when it is given back, and one that nobody took for IDLE_S is not used again; at most MAX_UNREAD_BYTES and one
receive buffer of an answer wait to be read.
"""

import asyncio
import functools
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from seamlessflow.data_plane.turns.engines.lifeline import Lifeline

CONNECT_TIMEOUT_S = 5.0
IDLE_S = 1.5
MAX_UNREAD_BYTES = 2 << 20
_DEFAULT_PORTS = {"http": 80, "https": 443}


class EngineDisconnected(ConnectionError):
    """The engine closed the connection before its answer was complete."""


class EngineSilent(TimeoutError):
    """The engine sent nothing for too long."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine is; `authority` is what the `Host` header says, `path` precedes every path."""

    host: str
    port: int
    is_encrypted: bool
    authority: str
    path: str


@functools.lru_cache(maxsize=1024)
def address_of(endpoint: str) -> Address:
    """Return the address in a URL. Raises ConnectionError."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise ConnectionError(f"the endpoint must be an http or https URL, got {endpoint!r}") from error
    if not parts.hostname:
        raise ConnectionError(f"the endpoint must name a host, got {endpoint!r}")
    return Address(parts.hostname, port, parts.scheme == "https", parts.netloc, parts.path.rstrip("/"))


class EngineConnection(asyncio.Protocol):
    """Idle ⇄ asked → closed. `status` is 0 until the head of the answer has arrived."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.status = 0
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._news: asyncio.Future[None] | None = None
        self._unread: list[bytes] = []
        self._num_unread = 0
        self._is_asked = self._is_complete = self._may_stay = self._is_paused = self._is_closed = False
        self._error: Exception | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._silence_s = self._heard_s = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether it can take a request: it is open, and its last answer was read to its end."""
        return not (self._is_closed or self._is_asked or self._transport.is_closing())

    def ask(self, request: bytes, *, silence_s: float) -> None:
        """Send a whole request, head and body. The answer ends with EngineSilent after `silence_s` without a byte."""
        self.status, self._is_asked, self._is_complete = 0, True, False
        self._silence_s, self._heard_s = silence_s, self._loop.time()
        self._silence = self._loop.call_later(silence_s, self._look)
        self._transport.write(request)

    async def head(self) -> int:
        """Return the status once it has arrived. Raises OSError, HttpParserError and what `fail` was told."""
        while not self.status:
            await self._wait()
        return self.status

    async def read_some(self) -> bytes:
        """Return what has arrived of the body since the last call; b"" at its end. Raises as `head`."""
        while not self._unread:
            if self._is_complete:
                self._answered()
                return b""
            await self._wait()
        return self._taken()

    async def read_all(self) -> bytes:
        """Return the whole body. Raises as `head`."""
        parts = []
        while not self._is_complete:
            parts += self._unread
            self._forget_unread()
            await self._wait()
        parts.append(self._taken())
        self._answered()
        return b"".join(parts)

    def fail(self, error: Exception) -> None:
        """End the answer with this error; nothing that has arrived is read any more."""
        self._is_complete = False
        self._forget_unread()
        self._error = error
        self._wake()
        self.close()

    def close(self) -> None:
        self._stop_timer()
        self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._stop_timer()
        if self._error is None:
            self._error = exc or EngineDisconnected("the engine closed the connection")
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self._is_asked or self._is_complete:
            self._transport.abort()  # nobody asked for this
            return
        self._heard_s = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(EngineDisconnected(f"the engine does not speak HTTP: {error}"))
            return
        if self._num_unread > MAX_UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_headers_complete(self) -> None:
        if self._is_complete:
            raise ValueError("a second answer follows")
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0  # the answer follows an informational one

    def on_body(self, body: bytes) -> None:
        self._unread.append(body)
        self._num_unread += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self._is_complete, self._may_stay = True, self._parser.should_keep_alive()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _taken(self) -> bytes:
        taken = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._forget_unread()
        return taken

    def _forget_unread(self) -> None:
        self._unread, self._num_unread = [], 0
        if self._is_paused and not self._is_closed:
            self._is_paused, self._heard_s = False, self._loop.time()
            self._transport.resume_reading()

    def _answered(self) -> None:
        """Note that the answer was read to its end; the connection may be used again if the engine allows it."""
        self._stop_timer()
        self._is_asked = not self._may_stay

    def _look(self) -> None:
        """Fail after too long a silence; the time in which the reader was too slow does not count."""
        left_s = self._silence_s if self._is_paused else self._heard_s + self._silence_s - self._loop.time()
        if left_s > 0:
            self._silence = self._loop.call_later(left_s, self._look)
        else:
            self.fail(EngineSilent(f"the engine sent nothing for {self._silence_s:g} s"))

    def _stop_timer(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class EngineConnections:
    """Knows all connections; one per process. The one that was given back last is taken first."""

    def __init__(self) -> None:
        self._taken: set[EngineConnection] = set()
        self._idle: dict[Address, list[EngineConnection]] = {}
        self._is_closed = False
        self._sweeping: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connections in (self._taken, *self._idle.values()):
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def take(self, endpoint: str, lifeline: Lifeline) -> EngineConnection:
        """Return a connection that nobody else uses, tied to the lifeline.

        Raises OSError, and EngineStalled if the lifeline is cut before there is one.
        """
        address = address_of(endpoint)
        connection = self._idle_one(address) or await self._connect(address, lifeline)
        self._taken.add(connection)
        lifeline.tie(connection.fail)
        return connection

    def give_back(self, connection: EngineConnection, lifeline: Lifeline) -> None:
        self._taken.discard(connection)
        lifeline.untie()
        if self._is_closed or not connection.is_usable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        self._idle.setdefault(connection.address, []).append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE_S, self._sweep, loop)

    def _idle_one(self, address: Address) -> EngineConnection | None:
        connections = self._idle.get(address)
        oldest_s = asyncio.get_running_loop().time() - IDLE_S
        while connections:
            connection = connections.pop()
            if connection.is_usable and connection.idle_since_s > oldest_s:
                return connection
            connection.close()
        return None

    async def _connect(self, address: Address, lifeline: Lifeline) -> EngineConnection:
        cut: list[Exception] = []
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S) as limit:

                def end(error: Exception) -> None:
                    cut.append(error)
                    limit.reschedule(0)

                lifeline.tie(end)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: EngineConnection(address),
                    address.host,
                    address.port,
                    ssl=address.is_encrypted or None,
                )
                return connection
        except TimeoutError as error:
            if cut:
                raise cut[0] from error
            message = f"the engine accepted no connection within {CONNECT_TIMEOUT_S:g} s"
            raise TimeoutError(message) from error
        finally:
            lifeline.untie()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for IDLE_S, and look again while there are others."""
        oldest_s = loop.time() - IDLE_S
        for address, connections in list(self._idle.items()):
            for connection in connections:
                if connection.idle_since_s <= oldest_s:
                    connection.close()
            self._idle[address] = [one for one in connections if one.is_usable]
            if not self._idle[address]:
                del self._idle[address]
        self._sweeping = loop.call_later(IDLE_S, self._sweep, loop) if self._idle else None
