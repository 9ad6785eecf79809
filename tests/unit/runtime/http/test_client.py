"""Client connections: reuse, ends of answers, silence, back-pressure, and what a server may not send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from seamlessflow.runtime.http import client
from seamlessflow.runtime.http.client import Disconnected, HttpConnection, HttpConnections, Silent
from seamlessflow.runtime.http.heads import address_of
from tests.fixtures.http_answers import CHUNKED_HEAD, LONG_S, REQUEST, WHOLE, Answer, answers_served, says


@asynccontextmanager
async def server(
    *answers: Answer, idle_s: float = 1.5
) -> AsyncIterator[tuple[HttpConnections, str, list[int]]]:
    taken = HttpConnections(peer="the server", idle_s=idle_s)
    async with answers_served(*answers, close_client=taken.close) as (url, num_connections):
        yield taken, url, num_connections


async def _asked(taken: HttpConnections, url: str, *, silence_s: float = LONG_S) -> HttpConnection:
    connection = await taken.take(address_of(url))
    connection.ask(REQUEST, silence_s=silence_s)
    return connection


async def test_a_connection_whose_answer_was_read_is_used_again() -> None:
    async with server(says(WHOLE), says(WHOLE)) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            assert (await connection.head(), await connection.read_all()) == (200, b"hello")
            taken.give_back(connection)
    assert num_connections == [1]


async def test_an_answer_that_was_left_early_ends_its_connection() -> None:
    part = CHUNKED_HEAD + b"2\r\nhe\r\n"
    async with server(says(part), says(WHOLE)) as (taken, url, num_connections):
        connection = await _asked(taken, url)
        assert await connection.read_some() == b"he"
        taken.give_back(connection)
        connection = await _asked(taken, url)
        assert await connection.read_all() == b"hello"
    assert num_connections == [2]


async def test_a_server_may_close_after_its_answer() -> None:
    closing = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with server(says(closing), says(WHOLE)) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            assert await connection.read_all() == b"hello"
            taken.give_back(connection)
    assert num_connections == [2]


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with server(says(WHOLE), says(WHOLE), idle_s=0.0) as (taken, url, num_connections):
        for _ in range(2):
            connection = await _asked(taken, url)
            await connection.read_all()
            taken.give_back(connection)
    assert num_connections == [2]


async def test_chunks_are_read_as_they_come_and_the_end_is_seen() -> None:
    rest: list[asyncio.StreamWriter] = []

    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED_HEAD + b"2\r\nhe\r\n")
        rest.append(writer)

    async with server(answer) as (taken, url, _):
        connection = await _asked(taken, url)
        assert await connection.read_some() == b"he"
        rest[0].write(b"3\r\nllo\r\n0\r\n\r\n")
        assert (await connection.read_some(), await connection.read_some()) == (b"llo", b"")


async def test_what_arrived_before_a_connection_broke_is_read_first() -> None:
    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED_HEAD + b"2\r\nhe\r\n")
        writer.close()

    async with server(answer) as (taken, url, _):
        connection = await _asked(taken, url)
        await asyncio.sleep(0.05)
        assert await connection.read_some() == b"he"
        with pytest.raises(Disconnected):
            await connection.read_some()


async def test_what_is_not_http_is_no_answer() -> None:
    async with server(says(b"SSH-2.0-OpenSSH\r\n")) as (taken, url, _):
        with pytest.raises(Disconnected, match="does not speak HTTP"):
            await (await _asked(taken, url)).head()


async def test_an_informational_answer_is_not_the_answer() -> None:
    async with server(says(b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE)) as (taken, url, _):
        connection = await _asked(taken, url)
        assert (await connection.head(), await connection.read_all()) == (200, b"hello")


async def test_a_second_answer_to_one_request_is_an_error() -> None:
    async with server(says(WHOLE + WHOLE)) as (taken, url, _):
        connection = await _asked(taken, url)
        with pytest.raises(Disconnected):
            await connection.read_all()


async def test_silence_ends_an_answer() -> None:
    async with server(says(CHUNKED_HEAD)) as (taken, url, _):
        connection = await _asked(taken, url, silence_s=0.05)
        with pytest.raises(Silent, match=r"nothing for 0\.05 s"):
            await connection.read_some()


async def test_a_reader_that_is_slow_stops_the_server_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MAX_UNREAD_BYTES", 1000)
    body = b"x" * (8 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with server(says(head, body)) as (taken, url, _):
        connection = await _asked(taken, url, silence_s=0.1)
        await connection.head()
        await asyncio.sleep(0.3)
        assert connection._num_unread < len(body)
        parts = []
        while part := await connection.read_some():
            parts.append(part)
    assert b"".join(parts) == body


async def test_a_connection_that_its_server_closed_meanwhile_is_not_used_again() -> None:
    writers: list[asyncio.StreamWriter] = []

    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE)
        writers.append(writer)

    async with server(answer, says(WHOLE)) as (taken, url, num_connections):
        connection = await _asked(taken, url)
        await connection.read_all()
        taken.give_back(connection)
        writers[0].close()
        await _until_unusable(connection)
        assert await (await _asked(taken, url)).read_all() == b"hello"
    assert num_connections == [2]


async def test_a_connection_on_which_its_server_wrote_unasked_is_not_used_again() -> None:
    writers: list[asyncio.StreamWriter] = []

    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE)
        writers.append(writer)

    async with server(answer, says(WHOLE)) as (taken, url, num_connections):
        connection = await _asked(taken, url)
        await connection.read_all()
        taken.give_back(connection)
        writers[0].write(WHOLE.replace(b"hello", b"wrong"))
        await _until_unusable(connection)
        assert await (await _asked(taken, url)).read_all() == b"hello"
    assert num_connections == [2]


async def _until_unusable(connection: HttpConnection) -> None:
    async with asyncio.timeout(LONG_S):
        while connection.is_usable:  # noqa: ASYNC110 - the protocol has no event for it
            await asyncio.sleep(0.01)


async def test_only_so_many_idle_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_IDLE", 1)
    async with server(says(WHOLE), says(WHOLE)) as (taken, url, _):
        both = [await _asked(taken, url) for _ in range(2)]
        for connection in both:
            await connection.read_all()
            taken.give_back(connection)
        assert [connection.is_usable for connection in both] == [True, False]


async def test_headers_belong_to_the_answer_that_has_them() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    later = b"HTTP/1.1 503 Later\r\nRETRY-After: 3\r\nContent-Length: 0\r\n\r\n"
    async with server(says(hints, later), says(WHOLE)) as (taken, url, _):
        connection = await _asked(taken, url)
        assert (await connection.head(), await connection.read_all()) == (503, b"")
        assert connection.headers == {b"retry-after": b"3", b"content-length": b"0"}
        taken.give_back(connection)
        connection = await _asked(taken, url)
        await connection.head()
        assert connection.headers == {b"content-length": b"5"}


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
async def test_a_head_without_an_end_is_no_answer(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(client, "MAX_HEAD_BYTES", 1000)
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"a" * 2000 + end
    async with server(says(hints)) as (taken, url, _):
        with pytest.raises(Disconnected, match="head of more than 1000 bytes"):
            await (await _asked(taken, url)).head()


async def test_a_listener_is_called_instead_of_one_that_waits() -> None:
    heard: list[bytes] = []
    is_over = asyncio.Event()
    async with server(says(CHUNKED_HEAD, b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"), says(WHOLE)) as (
        taken,
        url,
        number,
    ):
        connection = await taken.take(address_of(url))

        def listen() -> None:
            heard.append(connection.take_arrived())
            if connection.is_complete:
                connection.listener = None
                taken.give_back(connection)
                is_over.set()

        connection.listener = listen
        connection.ask(REQUEST, silence_s=None)
        await is_over.wait()
        assert b"".join(heard) == b"hello"
        assert await (await _asked(taken, url)).read_all() == b"hello"
    assert number == [1]


async def test_a_listener_hears_of_the_end_of_the_connection() -> None:
    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED_HEAD)
        writer.close()

    async with server(answer) as (taken, url, _):
        connection = await taken.take(address_of(url))
        is_lost = asyncio.Event()
        connection.listener = lambda: is_lost.set() if connection.error else None
        connection.ask(REQUEST, silence_s=None)
        await is_lost.wait()
        assert isinstance(connection.error, Disconnected)


async def test_a_closed_pool_gives_no_open_connection() -> None:
    async with server() as (taken, url, _):
        taken.close()
        with pytest.raises(Disconnected, match="closed"):
            await taken.connect(address_of(url))


async def test_a_server_that_accepts_nothing_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.0)
    async with server() as (taken, url, _):
        with pytest.raises(TimeoutError, match="the server accepted no connection within 0 s"):
            await taken.connect(address_of(url))


@pytest.mark.parametrize("url", ["ftp://a", "engine:80", "http://", "http://a:port"])
def test_an_endpoint_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConnectionError, match="endpoint"):
        address_of(url)


def test_an_endpoint_may_have_a_path() -> None:
    address = address_of("https://pool.example/engines/7/")
    assert (address.host, address.port, address.is_encrypted) == ("pool.example", 443, True)
    assert (address.authority, address.path) == ("pool.example", "/engines/7")
