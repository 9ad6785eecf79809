"""An engine that gives every request the same answer at almost no cost: `python -m
tests.benchmarks.canned_engine [SOCKET]`.

It speaks raw HTTP on a loopback port, which it prints, and on a unix socket if one is named. A body
with `"stream":true` is answered with events of one token each, one every `step_s`; `POST
/pace/<step_s>` sets this time (0 at first, which means as fast as the client reads). `POST
.../chat/completions` gets the same number of words as a chat completion, for proxies that only know
OpenAI's API.
"""

import asyncio
import base64
import sys

import msgspec
import numpy as np
import uvloop

from tests.benchmarks.raw_http import RequestProtocol, chunk, whole_answer

NUM_TOKENS = 50
END_ID = 2  # <|im_end|> of tests.fixtures.tiny_text
TOKEN_IDS = np.asarray([*range(40, 40 + NUM_TOKENS - 1), END_ID], dtype="<i4")
LOGPROBS = np.full(NUM_TOKENS, -0.5, dtype="<f4")
PACE = b"POST /pace/"
CHAT = b"/chat/completions "
WORD = "word "
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _packed(start: int, end: int) -> dict[str, object]:
    return {
        "index": 0,
        "finish_reason": "stop" if end == NUM_TOKENS else None,
        "token_ids_b64": base64.b64encode(TOKEN_IDS[start:end].tobytes()).decode(),
        "logprobs_b64": base64.b64encode(LOGPROBS[start:end].tobytes()).decode(),
        "weight_version": "0",
    }


def _unary() -> bytes:
    spans = [{"version": "0", "start": 0, "end": NUM_TOKENS}]
    choice = _packed(0, NUM_TOKENS) | {"weight_versions": spans}
    return whole_answer(msgspec.json.encode({"request_id": "x", "choices": [choice]}))


def _chat_choice(**content: object) -> bytes:
    choice = {"index": 0, "finish_reason": None, **content}
    kind = "chat.completion.chunk" if "delta" in content else "chat.completion"
    return msgspec.json.encode(
        {"id": "x", "object": kind, "created": 1, "model": "canned", "choices": [choice]}
    )


def _chat_event(number: int) -> bytes:
    is_last = number == NUM_TOKENS - 1
    body = _chat_choice(delta={"content": WORD}, finish_reason="stop" if is_last else None)
    return chunk(b"data: " + body + b"\n\n" + (b"data: [DONE]\n\n" if is_last else b""))


def _event(number: int) -> bytes:
    return chunk(b"data: " + msgspec.json.encode({"choices": [_packed(number, number + 1)]}) + b"\n\n")


UNARY = _unary()
EVENTS = [_event(number) for number in range(NUM_TOKENS)]
CHAT_UNARY = whole_answer(
    _chat_choice(message={"role": "assistant", "content": WORD * NUM_TOKENS}, finish_reason="stop")
)
CHAT_EVENTS = [_chat_event(number) for number in range(NUM_TOKENS)]


class _Engine:
    """The state that all connections share."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self.streams: set[asyncio.Task[None]] = set()

    def stream(self, transport: asyncio.WriteTransport, events: list[bytes]) -> None:
        task = asyncio.get_running_loop().create_task(self._stream(transport, events))
        self.streams.add(task)
        task.add_done_callback(self.streams.discard)

    async def _stream(self, transport: asyncio.WriteTransport, events: list[bytes]) -> None:
        transport.write(STREAM_HEAD)
        for event in events:
            await asyncio.sleep(self.step_s)
            transport.write(event)
        transport.write(b"0\r\n\r\n")


class _Connection(RequestProtocol):
    def __init__(self, engine: _Engine) -> None:
        super().__init__()
        self._engine = engine

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(PACE):
            self._engine.step_s = float(head[len(PACE) :].partition(b" ")[0])
        is_chat = CHAT in head.partition(b"\r\n")[0]
        if b'"stream":true' in body:
            self._engine.stream(self.transport, CHAT_EVENTS if is_chat else EVENTS)
        else:
            self.transport.write(CHAT_UNARY if is_chat else UNARY)


async def _serve() -> None:
    engine = _Engine()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(engine), "127.0.0.1", 0)
    if len(sys.argv) > 1:
        await loop.create_unix_server(lambda: _Connection(engine), sys.argv[1])
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
