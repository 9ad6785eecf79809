"""Connections to engines: reuse, ends of answers, silence, and what a cut lifeline does."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from seamlessflow.core.liveness.stall import StallWatch
from seamlessflow.data_plane.turns.engines import connections
from seamlessflow.data_plane.turns.engines.connections import (
    EngineConnection,
    EngineConnections,
    EngineDisconnected,
    EngineSilent,
    address_of,
)
from seamlessflow.data_plane.turns.engines.lifeline import EngineStalled, Lifeline

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG_S = 60.0

Answer = Callable[[asyncio.StreamWriter], None]


@asynccontextmanager
async def engine(*answers: Answer) -> AsyncIterator[tuple[EngineConnections, str, list[int]]]:
    """Serve the answers in turn, over all connections; yields the number of connections in a list."""
    waiting, num_connections = list(answers), [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        num_connections[0] += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                waiting.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            ended.append(writer)

    ended: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    taken = EngineConnections()
    try:
        yield taken, f"http://127.0.0.1:{port}", num_connections
    finally:
        taken.close()
        await asyncio.sleep(0.02)  # a connection that was just made reaches `serve`
        server.close()
        async with asyncio.timeout(LONG_S):
            while len(ended) < num_connections[0]:  # noqa: ASYNC110 - they end by themselves
                await asyncio.sleep(0.01)
        for writer in ended:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def _lifeline() -> Lifeline:
    return Lifeline(time.monotonic, StallWatch(), num_prompt_tokens=1)


def _says(*parts: bytes) -> Answer:
    return lambda writer: writer.writelines(parts)


async def _asked(taken: EngineConnections, url: str, *, silence_s: float = LONG_S) -> EngineConnection:
    connection = await taken.take(url, _lifeline())
    connection.ask(REQUEST, silence_s=silence_s)
    return connection


async def test_a_connection_whose_answer_was_read_is_used_again() -> None:
    async with engine(_says(WHOLE), _says(WHOLE)) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            assert (await connection.head(), await connection.read_all()) == (200, b"hello")
            taken.give_back(connection, _lifeline())
    assert num_connections == [1]


async def test_an_answer_that_was_left_early_ends_its_connection() -> None:
    part = CHUNKED_HEAD + b"2\r\nhe\r\n"
    async with engine(_says(part), _says(WHOLE)) as (taken, url, num_connections):
        connection = await _asked(taken, url)
        assert await connection.read_some() == b"he"
        taken.give_back(connection, _lifeline())
        connection = await _asked(taken, url)
        assert await connection.read_all() == b"hello"
    assert num_connections == [2]


async def test_an_engine_may_close_after_its_answer() -> None:
    closing = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with engine(_says(closing), _says(WHOLE)) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            assert await connection.read_all() == b"hello"
            taken.give_back(connection, _lifeline())
    assert num_connections == [2]


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.0)
    async with engine(_says(WHOLE), _says(WHOLE)) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            await connection.read_all()
            taken.give_back(connection, _lifeline())
    assert num_connections == [2]


async def test_chunks_are_read_as_they_come_and_the_end_is_seen() -> None:
    rest: list[asyncio.StreamWriter] = []

    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED_HEAD + b"2\r\nhe\r\n")
        rest.append(writer)

    async with engine(answer) as (taken, url, _):
        connection = await _asked(taken, url)
        assert await connection.read_some() == b"he"
        rest[0].write(b"3\r\nllo\r\n0\r\n\r\n")
        assert (await connection.read_some(), await connection.read_some()) == (b"llo", b"")


async def test_what_arrived_before_a_connection_broke_is_read_first() -> None:
    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED_HEAD + b"2\r\nhe\r\n")
        writer.close()

    async with engine(answer) as (taken, url, _):
        connection = await _asked(taken, url)
        await asyncio.sleep(0.05)
        assert await connection.read_some() == b"he"
        with pytest.raises(EngineDisconnected):
            await connection.read_some()


async def test_what_is_not_http_is_no_answer() -> None:
    async with engine(_says(b"SSH-2.0-OpenSSH\r\n")) as (taken, url, _):
        with pytest.raises(EngineDisconnected, match="does not speak HTTP"):
            await (await _asked(taken, url)).head()


async def test_an_informational_answer_is_not_the_answer() -> None:
    async with engine(_says(b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE)) as (taken, url, _):
        connection = await _asked(taken, url)
        assert (await connection.head(), await connection.read_all()) == (200, b"hello")


async def test_a_second_answer_to_one_request_is_an_error() -> None:
    async with engine(_says(WHOLE + WHOLE)) as (taken, url, _):
        connection = await _asked(taken, url)
        with pytest.raises(EngineDisconnected):
            await connection.read_all()


async def test_silence_ends_an_answer() -> None:
    async with engine(_says(CHUNKED_HEAD)) as (taken, url, _):
        connection = await _asked(taken, url, silence_s=0.05)
        with pytest.raises(EngineSilent, match=r"nothing for 0\.05 s"):
            await connection.read_some()


async def test_a_reader_that_is_slow_stops_the_engine_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", 1000)
    body = b"x" * (8 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with engine(_says(head, body)) as (taken, url, _):
        connection = await _asked(taken, url, silence_s=0.1)
        await connection.head()
        await asyncio.sleep(0.3)
        assert connection._num_unread < len(body)
        parts = []
        while part := await connection.read_some():
            parts.append(part)
    assert b"".join(parts) == body


async def test_a_cut_lifeline_ends_the_wait_for_an_answer() -> None:
    lifeline = _lifeline()
    async with engine(_says(CHUNKED_HEAD)) as (taken, url, _):
        connection = await taken.take(url, lifeline)
        connection.ask(REQUEST, silence_s=LONG_S)
        asyncio.get_running_loop().call_later(0.05, lifeline.cut, "it is slow")
        with pytest.raises(EngineStalled, match="it is slow"):
            await connection.read_some()


async def test_a_lifeline_that_was_cut_before_ends_the_next_wait() -> None:
    lifeline = _lifeline()
    lifeline.cut("it is slow")
    async with engine(_says(WHOLE)) as (taken, url, _):
        with pytest.raises(EngineStalled, match="it is slow"):
            await taken.take(url, lifeline)


async def test_a_lifeline_that_is_cut_between_two_waits_ends_the_next() -> None:
    lifeline = _lifeline()
    async with engine(_says(WHOLE)) as (taken, url, _):
        connection = await taken.take(url, lifeline)
        connection.ask(REQUEST, silence_s=LONG_S)
        await connection.head()
        lifeline.cut("it is slow")
        with pytest.raises(EngineStalled, match="it is slow"):
            await connection.read_all()


@pytest.mark.parametrize("url", ["ftp://a", "engine:80", "http://", "http://a:port"])
def test_an_endpoint_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConnectionError, match="endpoint"):
        address_of(url)


def test_an_endpoint_may_have_a_path() -> None:
    address = address_of("https://pool.example/engines/7/")
    assert (address.host, address.port, address.is_encrypted) == ("pool.example", 443, True)
    assert (address.authority, address.path) == ("pool.example", "/engines/7")
