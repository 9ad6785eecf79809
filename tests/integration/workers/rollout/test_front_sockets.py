"""The front on real sockets, byte for byte: what its engine is sent, what its clients get, and how connections end."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.runtime.http_connections import (
    Address,
    Disconnected,
    HttpConnection,
    HttpConnections,
    address_of,
)
from seamlessflow_workers.rollout import front as front_module
from seamlessflow_workers.rollout import front_connection, front_relay, front_server
from seamlessflow_workers.rollout.front import Front
from tests.fakes.fake_control_plane import until
from tests.fixtures.http_answers import CHUNKED_HEAD, LONG_S, WHOLE, Answer, says

JOB = UUID(int=5)
HEAD = (
    b"POST /inference/v1/generate HTTP/1.1\r\nHost: front\r\nAuthorization: Bearer right\r\n"
    b"X-SeamlessFlow-Job: %b\r\nX-SeamlessFlow-Policy-Version: 3\r\n" % str(JOB).encode()
)
REQUEST = HEAD + b"Content-Length: 2\r\n\r\n{}"
EVENTS_HEAD = CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n")
ANSWER = (
    b"HTTP/1.1 200 OK\r\nX-SeamlessFlow-Policy-Version: 3\r\n"
    b"Content-Type: application/octet-stream\r\nContent-Length: 5\r\n\r\nhello"
)
REFUSAL = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"


def refusal(status: bytes, body: bytes, *, closes: bool = False) -> bytes:
    return REFUSAL % (status, b"Connection: close\r\n" if closes else b"", len(body), body)


class Engine:
    """Gives its answers in turn, and keeps what it is sent."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.num_lost = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                self.answers.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.num_lost += 1
        finally:
            writer.close()


class Scene:
    def __init__(self, front: Front, engine: Engine) -> None:
        self.front, self.engine = front, engine
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = address_of(self.front.endpoint)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        self._writers.append(writer)
        return reader, writer

    async def says(self, data: bytes) -> bytes:
        """Send bytes and return everything up to the end of the connection."""
        reader, writer = await self.connect()
        writer.write(data)
        async with asyncio.timeout(LONG_S):
            return await reader.read()

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await self.front.stop()


@asynccontextmanager
async def scene(tmp_path: Path, *answers: Answer) -> AsyncIterator[Scene]:
    engine, path = Engine(answers), tmp_path / "engine.sock"
    server = await asyncio.start_unix_server(engine.serve, path)
    front = Front(engine_socket=path, job_id=JOB, on_change=lambda: None)
    await front.start()
    front.open(token="right", version=3)
    made = Scene(front, engine)
    try:
        yield made
    finally:
        await made.close()
        server.close()
        await until(lambda: engine.num_lost == len(engine.writers), what="the engine's connections end")


def nothing(_: asyncio.StreamWriter) -> None:
    """Give no answer."""


async def test_the_engine_gets_the_body_and_what_it_is_but_nothing_else(tmp_path: Path) -> None:
    async with scene(tmp_path, says(WHOLE), says(WHOLE), says(WHOLE)) as made:
        reader, writer = await made.connect()
        writer.write(HEAD.replace(b"/generate", b"/generate?a=b") + b"Content-Length: 2\r\n\r\n{}")
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        writer.write(
            HEAD
            + b"Content-Type: x/%d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nA: b\r\n\r\n"
        )
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        writer.write(b"GET /health HTTP/1.1\r\nHost: front\r\nAuthorization: Bearer right\r\n\r\n")
        assert await reader.readexactly(len(ANSWER)) == ANSWER
    generate = b"POST /inference/v1/generate HTTP/1.1\r\nHost: engine\r\nContent-Type: %b\r\n%b"
    assert made.engine.requests == [
        generate % (b"application/json", b"Content-Length: 2\r\n\r\n{}"),
        generate % (b"x/%d", b"Content-Length: 3\r\n\r\nabc"),
        b"GET /health HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
    ]
    assert len(made.engine.writers) == 1


async def test_a_stream_leaves_as_it_comes_with_its_own_type(tmp_path: Path) -> None:
    both = EVENTS_HEAD + b"3\r\na\n\n\r\n3\r\nb\n\n\r\n"
    async with scene(tmp_path, says(both)) as made:
        reader, writer = await made.connect()
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head == (
            b"HTTP/1.1 200 OK\r\nX-SeamlessFlow-Policy-Version: 3\r\n"
            b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert await reader.readexactly(11) == b"6\r\na\n\nb\n\n\r\n"
        made.engine.writers[0].write(b"3\r\nc\n\n\r\n")
        assert await reader.readexactly(8) == b"3\r\nc\n\n\r\n"
        made.engine.writers[0].write(b"3\r\nd\n\n\r\n0\r\n\r\n")
        assert await reader.readexactly(13) == b"3\r\nd\n\n\r\n0\r\n\r\n"
        assert made.front.num_in_flight == 0


async def test_requests_that_come_together_are_answered_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path, says(WHOLE), says(WHOLE.replace(b"hello", b"again"))) as made:
        last = REQUEST.replace(b"Host", b"Connection: close\r\nHost")
        closing = ANSWER.replace(b"hello", b"again").replace(b"Content-L", b"Connection: close\r\nContent-L")
        assert await made.says(REQUEST + last) == ANSWER + closing


@pytest.mark.parametrize(
    "data,answer",
    [
        (b"hello\r\n\r\n", refusal(b"400 Bad Request", b'{"code":"bad_request"}', closes=True)),
        (
            HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            refusal(b"400 Bad Request", b'{"code":"bad_request"}', closes=True),
        ),
        (
            HEAD + b"Authorization: Bearer wrong\r\n\r\n",
            refusal(b"400 Bad Request", b'{"code":"bad_request"}', closes=True),
        ),
        (
            HEAD + b"Content-Length: %d\r\n\r\n" % (front_module.MAX_BODY_BYTES + 1),
            refusal(b"413 Request Entity Too Large", b'{"code":"body_too_large"}', closes=True),
        ),
        (
            b"GET /health HTTP/1.0\r\nHost: a\r\n\r\n",
            refusal(b"505 HTTP Version Not Supported", b'{"code":"unknown_http_version"}', closes=True),
        ),
        (
            b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            refusal(b"404 Not Found", b'{"code":"not_found"}', closes=True)[:-20],
        ),
    ],
)
async def test_what_is_no_request_for_the_engine_ends_its_connection(
    tmp_path: Path, data: bytes, answer: bytes
) -> None:
    async with scene(tmp_path) as made:
        assert await made.says(data) == answer
    assert made.engine.requests == []


async def test_a_request_that_is_refused_leaves_the_connection_to_the_next(tmp_path: Path) -> None:
    async with scene(tmp_path, says(WHOLE)) as made:
        reader, writer = await made.connect()
        writer.write(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        writer.write(REQUEST.replace(b"right", b"wrong"))
        expected = refusal(b"404 Not Found", b'{"code":"not_found"}')[:-20]
        expected += refusal(b"401 Unauthorized", b'{"code":"unauthorized"}')
        assert await reader.readexactly(len(expected)) == expected
        writer.write(REQUEST)
        assert await reader.readexactly(len(ANSWER)) == ANSWER


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"]
)
async def test_an_engine_that_gives_no_whole_answer_is_lost(tmp_path: Path, answer: bytes) -> None:
    def breaks_off(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with scene(tmp_path, breaks_off, says(WHOLE)) as made:
        reader, writer = await made.connect()
        writer.write(REQUEST)
        lost = refusal(b"502 Bad Gateway", b'{"code":"engine_lost"}')
        assert await reader.readexactly(len(lost)) == lost
        assert made.front.num_in_flight == 0
        writer.write(REQUEST)
        assert await reader.readexactly(len(ANSWER)) == ANSWER


async def test_an_engine_that_is_not_there_is_lost(tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        (tmp_path / "engine.sock").unlink()
        reader, writer = await made.connect()
        writer.write(REQUEST)
        lost = refusal(b"502 Bad Gateway", b'{"code":"engine_lost"}')
        assert await reader.readexactly(len(lost)) == lost
        assert made.front.num_in_flight == 0


async def test_a_whole_answer_may_be_large_but_not_without_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_relay, "MAX_ANSWER_BYTES", 12 << 20)
    large, larger = (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size for size in (8 << 20, 16 << 20)
    )
    pool = HttpConnections(peer="the front", idle_s=1.0)
    async with scene(tmp_path, says(large), says(larger)) as made:
        connection = await pool.take(address_of(made.front.endpoint))
        connection.ask(REQUEST, silence_s=LONG_S)
        assert await connection.read_all() == b"x" * (8 << 20)
        pool.give_back(connection)
        connection = await pool.take(address_of(made.front.endpoint))
        connection.ask(REQUEST, silence_s=LONG_S)
        assert (await connection.head(), await connection.read_all()) == (502, b'{"code":"engine_lost"}')
        pool.close()


async def test_a_gateway_that_reads_slowly_slows_its_engine_down(tmp_path: Path) -> None:
    event = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
    num_events, sent = 800, 0

    def floods(writer: asyncio.StreamWriter) -> None:
        async def flood() -> None:
            nonlocal sent
            writer.write(EVENTS_HEAD)
            for _ in range(num_events):
                writer.write(event)
                await writer.drain()
                sent += 1
            writer.write(b"0\r\n\r\n")

        flooding.append(asyncio.create_task(flood()))

    flooding: list[asyncio.Task[None]] = []
    pool = HttpConnections(peer="the front", idle_s=1.0)
    async with scene(tmp_path, floods) as made:
        reader, writer = await made.connect()
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        seen = -1
        while seen != sent or not sent:
            seen = sent
            await asyncio.sleep(0.2)
        assert sent < num_events / 2
        size = 0
        while not (part := await reader.read(1 << 20)).endswith(b"\r\n0\r\n\r\n"):
            assert part
            size += len(part)
        assert size + len(part) > num_events << 16
        await flooding[0]
        assert made.front.num_in_flight == 0
    pool.close()


async def test_a_gateway_that_leaves_while_it_waits_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "NUM_HELD_MAX", 1)
    async with scene(tmp_path, says(WHOLE)) as made:
        made.front.hold()
        _, writer = await made.connect()
        writer.write(REQUEST)
        await until(lambda: len(made.front._held) == 1, what="it waits")
        reader, other = await made.connect()
        other.write(REQUEST)
        full = refusal(b"503 Service Unavailable", b'{"code":"overloaded"}')
        assert await reader.readexactly(len(full)) == full
        writer.close()
        await until(lambda: not made.front._held, what="it is forgotten")
        other.write(REQUEST)
        await until(lambda: len(made.front._held) == 1, what="the other waits")
        made.front.release(version=3)
        assert await reader.readexactly(len(ANSWER)) == ANSWER
    assert len(made.engine.requests) == 1


async def test_a_gateway_that_leaves_a_stream_takes_it_from_the_engine(tmp_path: Path) -> None:
    async with scene(tmp_path, says(EVENTS_HEAD + b"3\r\na\n\n\r\n")) as made:
        reader, writer = await made.connect()
        writer.write(REQUEST)
        await reader.readuntil(b"a\n\n\r\n")
        writer.close()
        await until(lambda: made.engine.num_lost == 1, what="the engine loses its client")
        assert made.front.num_in_flight == 0


async def test_a_gateway_that_leaves_before_there_is_a_connection_to_the_engine_ends_its_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    async def connects_never(_pool: HttpConnections, _address: Address) -> HttpConnection:
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            ended.append(True)

    monkeypatch.setattr(HttpConnections, "connect", connects_never)
    async with scene(tmp_path) as made:
        _, writer = await made.connect()
        writer.write(REQUEST)
        await until(lambda: made.front.num_in_flight == 1, what="it is in flight")
        writer.close()
        await until(lambda: bool(ended), what="nobody waits for a connection")
        assert made.front.num_in_flight == 0
    assert made.engine.requests == []


async def test_a_client_that_sends_nothing_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_server, "ROUND_S", 0.02)
    monkeypatch.setattr(front_connection, "HEAD_S", 0.05)
    async with scene(tmp_path) as made:
        late = refusal(b"408 Request Timeout", b'{"code":"timeout"}', closes=True)
        assert await made.says(b"GET /health HT") == late


async def test_stopping_breaks_off_what_does_not_end_and_closes_what_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "STOP_S", 0.2)
    pool = HttpConnections(peer="the front", idle_s=60.0)
    async with scene(tmp_path, says(WHOLE), nothing) as made:
        address = address_of(made.front.endpoint)
        idle = await pool.take(address)
        idle.ask(REQUEST, silence_s=LONG_S)
        assert await idle.read_all() == b"hello"
        pool.give_back(idle)
        endless = await pool.connect(address)
        endless.ask(REQUEST, silence_s=LONG_S)
        await until(lambda: len(made.engine.requests) == 2, what="the engine has it")
        began_s = time.monotonic()
        await made.front.stop()
        assert time.monotonic() - began_s < LONG_S / 2
        with pytest.raises((Disconnected, ConnectionResetError)):
            await endless.head()
        await until(lambda: not idle.is_usable, what="the idle one ends")
        with pytest.raises(ConnectionRefusedError):
            await pool.connect(address)
    pool.close()
