"""Links between planes that can be cut in one or both directions and restored, and one that
reorders requests.

A cut link holds bytes back and keeps its connections open, as a network does that drops packets:
nobody is told. Links can be changed from any thread; bytes move in the loop that opened the link.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import uvicorn
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16
HOP_BY_HOP = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(slots=True)
class Link:
    """A link in front of the server at `target`, with its own address `url`."""

    target: str
    url: str = ""
    _forth: asyncio.Event = field(default_factory=asyncio.Event)
    _back: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @contextmanager
    def cut(self, *, forth: bool = True, back: bool = True) -> Iterator[None]:
        """Inside the block nothing passes in these directions: `forth` to the server, `back` from
        it."""
        cut = [event for event, is_cut in ((self._forth, forth), (self._back, back)) if is_cut]
        for event in cut:
            self._loop.call_soon_threadsafe(event.clear)
        try:
            yield
        finally:
            for event in cut:
                self._loop.call_soon_threadsafe(event.set)

    @contextmanager
    def led_to(self, target: str) -> Iterator[None]:
        """Inside the block the link leads elsewhere; its earlier connections are closed."""
        true_target, self.target = self.target, target
        self._loop.call_soon_threadsafe(self._close_all)
        try:
            yield
        finally:
            self.target = true_target
            self._loop.call_soon_threadsafe(self._close_all)

    def _close_all(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._forth.wait()
        parts = urlsplit(self.target)
        try:
            behind_reader, behind_writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, behind_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                _pass(reader, behind_writer, self._forth), _pass(behind_reader, writer, self._back)
            )
        finally:
            self._writers -= both


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    # If a connection breaks on one side, the other side is closed.
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            await is_open.wait()
            writer.write(chunk)
            await writer.drain()


@asynccontextmanager
async def link_opened(target: str) -> AsyncIterator[Link]:
    link = Link(target)
    link._forth.set()
    link._back.set()
    tasks: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(link._serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, LOOPBACK, 0)
    link.url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        server.close()
        link._close_all()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Shuffler:
    """An HTTP proxy that delays requests at random, so that they overtake one another, and repeats
    those that write.

    A repetition is sent up to `late_s` after the request that it repeats, so other requests may
    come in between.
    """

    target: str
    seed: int
    repeated: float = 0.3  # the share of writing requests
    delay_s: float = 0.15
    late_s: float = 2.0
    url: str = ""
    num_repeated: int = 0
    num_passed: int = 0
    _random: random.Random = field(init=False)
    _client: httpx.AsyncClient = field(init=False)
    _late: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        headers = [(key, value) for key, value in request.headers.items() if key.lower() not in HOP_BY_HOP]
        url = httpx.URL(self.target).copy_with(
            path=request.url.path, query=request.url.query.encode() or None
        )
        passed = self._client.build_request(
            request.method, url, headers=headers, content=await request.body()
        )
        self.num_passed += 1
        if request.method != "GET" and self._random.random() < self.repeated:
            self._repeat(passed)
        await asyncio.sleep(self._random.uniform(0, self.delay_s))
        await (await self._answer(passed))(scope, receive, send)

    async def _answer(self, passed: httpx.Request) -> Response:
        try:
            answer = await self._client.send(passed, stream=True)
        except httpx.TransportError:
            return Response(status_code=502)
        kept = {key: value for key, value in answer.headers.items() if key.lower() not in HOP_BY_HOP}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose)
        )

    def _repeat(self, passed: httpx.Request) -> None:
        self.num_repeated += 1
        task = asyncio.ensure_future(self._send_again(passed, self._random.uniform(0, self.late_s)))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _send_again(self, passed: httpx.Request, after_s: float) -> None:
        await asyncio.sleep(after_s)
        # Nobody reads the answer to a repetition, or cares whether it arrives.
        with contextlib.suppress(httpx.TransportError):
            await self._client.send(
                httpx.Request(passed.method, passed.url, headers=passed.headers, content=passed.content)
            )

    async def close(self) -> None:
        for task in self._late:
            task.cancel()
        await self._client.aclose()


class _QuietServer(uvicorn.Server):
    """A server that leaves signal handlers to the benchmark."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def shuffler_opened(target: str, *, seed: int) -> AsyncIterator[Shuffler]:
    shuffler = Shuffler(target, seed)
    config = uvicorn.Config(
        shuffler, host=LOOPBACK, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = _QuietServer(config)
    serving = asyncio.ensure_future(server.serve())
    await server.is_up.wait()
    shuffler.url = f"http://{LOOPBACK}:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield shuffler
    finally:
        server.should_exit = True
        await serving
        await shuffler.close()
