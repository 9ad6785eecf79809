"""The head of an answer leaves with what follows it, or alone after one turn of the loop."""

import asyncio

from seamlessflow.runtime.http.protocol import JoinedWrites


class Transport(asyncio.Transport):
    """Records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.writes.append(b"closed")


async def _writes(*data: bytes, is_closed: bool = False) -> list[bytes]:
    transport = Transport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    for one in data:
        joined.write(one)
    if is_closed:
        joined.close()
    await asyncio.sleep(0)
    return transport.writes


async def test_head_and_body_are_one_write() -> None:
    assert await _writes(b"head", b"body") == [b"headbody"]


async def test_what_follows_the_body_is_written_as_it_comes() -> None:
    assert await _writes(b"head", b"first", b"second") == [b"headfirst", b"second"]


async def test_a_head_that_nothing_follows_is_sent_in_the_next_turn_of_the_loop() -> None:
    assert await _writes(b"head") == [b"head"]


async def test_a_head_is_sent_before_the_connection_is_closed() -> None:
    assert await _writes(b"head", is_closed=True) == [b"head", b"closed"]
