"""Agents that never stop asking: `python -m tests.benchmarks.flood_client HOST PORT NUM_THREADS KEY...`.

Each thread of a session is a connection that sends the next request as soon as it has an answer, whatever this says. It
runs until it is ended, and yields to every other process of the machine.
"""

import asyncio
import os
import sys
from typing import cast

import uvloop

BODY = b'{"messages": [{"role": "user", "content": "%d"}], "n": 8}'
LEAST_PRIORITY = 19


class _Thread(asyncio.Protocol):
    def __init__(self, key: str, number: int) -> None:
        body = BODY % number
        self._request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer %s\r\ncontent-length: %d\r\n\r\n" % (key.encode(), len(body))
        ) + body
        self._answer = b""
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is of no common class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(body) >= length:
            self._answer = b""
            self._transport.write(self._request)


async def _flood(host: str, port: int, num_threads: int, keys: list[str]) -> None:
    loop = asyncio.get_running_loop()
    for number in range(num_threads):
        for key in keys:
            await loop.create_connection(lambda key=key, n=number: _Thread(key, n), host, port)  # type: ignore[misc]
    await asyncio.Event().wait()


if __name__ == "__main__":
    os.nice(LEAST_PRIORITY)
    uvloop.run(_flood(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
