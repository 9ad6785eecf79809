"""The limits of one connection, fed by hand: what counts as head, what is refused, what is left
alone."""

import asyncio
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from seamlessflow.runtime.http.departure import departure_of
from seamlessflow.runtime.http.limits import MAX_HEAD_BYTES, HttpLimits
from seamlessflow.runtime.http.protocol import limited_protocol

PIECE = b"x" * (MAX_HEAD_BYTES + 1)


class Transport(asyncio.Transport):
    """Records what is written; never blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.num_writes = 0
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.num_writes += 1

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


async def echo_size(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    size = 0
    while True:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{size} bytes".encode()})


def refusal(status: HTTPStatus, message: str) -> tuple[bytes, bytes]:
    return b"text/plain", message.encode()


def connected(limits: HttpLimits, app: Any = echo_size) -> Callable[[], tuple[Any, Transport]]:
    """Open connections that share the limits and the server's state."""
    kind, state = limited_protocol(limits), ServerState()
    config = uvicorn.Config(app, http=kind, log_config=None)

    def connect() -> tuple[Any, Transport]:
        protocol: Any = kind(  # type: ignore[call-arg]
            config=config, server_state=state, app_state={}, _loop=asyncio.get_running_loop()
        )
        transport = Transport()
        protocol.connection_made(transport)
        return protocol, transport

    return connect


async def finalized(transport: Transport) -> bytes:
    for _ in range(20):
        await asyncio.sleep(0)
    return transport.written


async def test_a_body_in_large_pieces_does_not_count_as_head() -> None:
    protocol, transport = connected(HttpLimits(refusal))()
    protocol.data_received(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (3 * len(PIECE)))
    for _ in range(3):
        protocol.data_received(PIECE)
        await finalized(transport)
    assert f"{3 * len(PIECE)} bytes".encode() in await finalized(transport)
    assert not transport.is_over
    protocol.connection_lost(None)


async def test_head_and_body_of_an_answer_are_one_write() -> None:
    protocol, transport = connected(HttpLimits(refusal))()
    for number in (1, 2):
        protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
        assert (await finalized(transport)).count(b"0 bytes") == number
        assert transport.num_writes == number
    protocol.connection_lost(None)


async def test_an_application_is_told_that_the_client_left() -> None:
    told: list[str] = []

    async def wait(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        with departure_of(scope).awaited(lambda: told.append("left")):
            await asyncio.sleep(0.01)

    protocol, transport = connected(HttpLimits(refusal), wait)()
    protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
    await finalized(transport)
    assert told == []
    protocol.connection_lost(None)
    assert told == ["left"]
    await asyncio.sleep(0.02)


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\n\r\n"])
async def test_an_endless_head_is_refused_on_a_new_and_on_a_used_connection(before: bytes) -> None:
    protocol, transport = connected(HttpLimits(refusal))()
    if before:
        protocol.data_received(before)
        assert b"0 bytes" in await finalized(transport)
    for _ in range(3):
        protocol.data_received(b"GET / HTTP/1.1\r\nx: " if not protocol._num_head_bytes else PIECE)
    assert b"HTTP/1.1 431 " in await finalized(transport)
    assert transport.is_over
    protocol.connection_lost(None)


async def test_a_connection_beyond_the_limit_is_told_to_retry() -> None:
    connect = connected(HttpLimits(refusal, max_connections=2))
    opened = [connect() for _ in range(3)]
    assert [transport.is_over for _, transport in opened] == [False, False, True]
    assert opened[2][1].written.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in opened[2][1].written
    for protocol, _ in opened:
        protocol.connection_lost(None)


async def test_the_connections_of_one_client_leave_some_for_others() -> None:
    connect = connected(HttpLimits(refusal, max_connections=8))

    async def ask(key: bytes) -> tuple[Any, bytes]:
        protocol, transport = connect()
        protocol.data_received(
            b"POST / HTTP/1.1\r\nAuthorization: " + key + b"\r\nContent-Length: 2\r\n\r\nab"
        )
        return protocol, await finalized(transport)

    flooding = [await ask(b"Bearer greedy") for _ in range(6)]
    assert [answer[9:12] for _, answer in flooding] == [b"200"] * 4 + [b"429"] * 2
    assert b"retry-after: 1" in flooding[-1][1]
    for protocol, _ in flooding[4:]:
        protocol.connection_lost(None)
    assert b"2 bytes" in (await ask(b"Bearer modest"))[1]
    flooding[0][0].connection_lost(None)
    flooding[1][0].connection_lost(None)
    assert b"2 bytes" in (await ask(b"Bearer greedy"))[1]


async def test_too_many_requests_at_once_on_one_connection_close_it() -> None:
    protocol, transport = connected(HttpLimits(refusal))()
    protocol.data_received(b"GET / HTTP/1.1\r\n\r\n" * 50)
    assert transport.is_over
    protocol.connection_lost(None)


async def test_deadlines_are_counted_in_rounds() -> None:
    connect = connected(HttpLimits(refusal, head_s=2, body_s=2))
    (late_head, head), (late_body, body), (idle, kept) = connect(), connect(), connect()
    late_head.data_received(b"GET / HT")
    late_body.data_received(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx")
    idle.data_received(b"GET / HTTP/1.1\r\n\r\n")
    await finalized(kept)
    for _ in range(6):
        for protocol in (late_head, late_body, idle):
            protocol.look()
    assert head.written.startswith(b"HTTP/1.1 408 ")
    assert body.written.startswith(b"HTTP/1.1 408 ")
    assert not kept.is_over  # it has a time-out of its own
    for protocol in (late_head, late_body, idle):
        protocol.connection_lost(None)
