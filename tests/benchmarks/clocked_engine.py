"""An engine whose streams all get one token at each tick of one clock: `python -m
tests.benchmarks.clocked_engine STEP_S TOKEN_ID...`.

It speaks raw HTTP on a loopback port, which it prints. The token of tick k is the k-th of the given
ids, modulo their number, so whoever receives a token knows its tick and, from `GET /ticks`, when it
was sent (seconds of CLOCK_MONOTONIC, which all processes of a machine share). `POST /answers/N` ends
answers after N tokens and starts the ticks anew; with 0, streams stay open and get nothing.
"""

import asyncio
import base64
import sys
import time
from array import array

import msgspec
import uvloop

from tests.benchmarks.canned_engine import STREAM_HEAD
from tests.benchmarks.raw_http import RequestProtocol, chunk, whole_answer

TICKS = b"GET /ticks "
ANSWERS = b"POST /answers/"
LOGPROB = base64.b64encode(array("f", [-0.5]).tobytes()).decode()


def _event(token_id: int, *, is_last: bool) -> bytes:
    choice = {
        "index": 0,
        "finish_reason": "length" if is_last else None,
        "token_ids_b64": base64.b64encode(array("i", [token_id]).tobytes()).decode(),
        "logprobs_b64": LOGPROB,
        "weight_version": "0",
    }
    event = b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n"
    return chunk(event) + (b"0\r\n\r\n" if is_last else b"")


class _Clock:
    """The streams of all connections, each with the tokens that it still gets."""

    def __init__(self, step_s: float, token_ids: list[int]) -> None:
        self._step_s = step_s
        self._events = [_event(token_id, is_last=False) for token_id in token_ids]
        self._last_events = [_event(token_id, is_last=True) for token_id in token_ids]
        self._left: dict[asyncio.WriteTransport, int] = {}
        self.num_tokens = 0
        self.sent_s: list[float] = []

    def begin(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.sent_s.clear()

    def stream(self, transport: asyncio.WriteTransport) -> None:
        transport.write(STREAM_HEAD)
        if self.num_tokens:
            self._left[transport] = self.num_tokens

    def forget(self, transport: asyncio.WriteTransport) -> None:
        self._left.pop(transport, None)

    async def run(self) -> None:
        next_s = time.monotonic()
        while True:
            next_s += self._step_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            self._tick()

    def _tick(self) -> None:
        number = len(self.sent_s) % len(self._events)
        self.sent_s.append(time.monotonic())
        for transport, num_left in list(self._left.items()):
            if num_left == 1:
                del self._left[transport]
                transport.write(self._last_events[number])
            else:
                self._left[transport] = num_left - 1
                transport.write(self._events[number])


class _Connection(RequestProtocol):
    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def connection_lost(self, error: Exception | None) -> None:
        self._clock.forget(self.transport)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(TICKS):
            self.transport.write(whole_answer(msgspec.json.encode(self._clock.sent_s)))
        elif head.startswith(ANSWERS):
            self._clock.begin(int(head[len(ANSWERS) :].partition(b" ")[0]))
            self.transport.write(whole_answer(b"{}"))
        else:
            self._clock.stream(self.transport)


async def _serve(step_s: float, token_ids: list[int]) -> None:
    clock = _Clock(step_s, token_ids)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(clock), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(server.serve_forever(), clock.run())


if __name__ == "__main__":
    uvloop.run(_serve(float(sys.argv[1]), [int(argument) for argument in sys.argv[2:]]))
