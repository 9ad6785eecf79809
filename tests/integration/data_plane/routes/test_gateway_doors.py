"""Strangers and slow clients hold no memory of the gateway, and no connection forever."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

BODY_BYTES = 30 << 20
NUM_STRANGERS = 12
NUM_HALF_HEADS = 20
PIECE = b"x" * (1 << 20)
USER: dict[str, Any] = {"role": "user", "content": "12+34?"}
SHORT_TIMEOUTS = {
    "head_timeout_s": 2.0,
    "body_timeout_s": 2.0,
    "drain_timeout_s": 2.0,
}
PATIENCE_S = 40.0  # for things that take two to four seconds on an idle machine


def rss_bytes(world: GatewayWorld) -> int:
    assert world.process is not None
    size: int = psutil.Process(world.process.pid).memory_info().rss
    return size


@dataclass(frozen=True, slots=True)
class Wires:
    """Bare connections to one gateway, closed when the test ends."""

    world: GatewayWorld
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.world.port)
        self.writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)


@pytest.fixture
async def wires(gateway_world: GatewayWorld) -> AsyncIterator[Wires]:
    wires = Wires(gateway_world)
    yield wires
    await wires.close()


def head(path: str, token: str, num_bytes: int) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: g",
        f"Authorization: Bearer {token}",
        f"Content-Length: {num_bytes}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def send_unfinished(wires: Wires, path: str, token: str = "sft_no-such-token") -> None:
    """Send a large body without its end, as far as the gateway reads it."""
    _, writer = await wires.open(head(path, token, BODY_BYTES))
    # The gateway is meant to stop reading here.
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(5.0):
            for _ in range(BODY_BYTES // len(PIECE) - 1):
                writer.write(PIECE)
                await writer.drain()


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """Return everything up to the end of the connection; b"open" if the server does not close it."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except TimeoutError:
        return b"open"
    except ConnectionResetError:
        return b""


async def session_key(world: GatewayWorld) -> str:
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key: str = group["sessions"][0]["api_key"]
    return key


def is_connected(world: GatewayWorld, client_port: int) -> bool:
    """Return whether the gateway still holds the connection from this port."""
    assert world.process is not None
    connections = psutil.Process(world.process.pid).net_connections("tcp")
    return any(c.raddr and c.raddr.port == client_port for c in connections)


async def test_unfinished_bodies_of_strangers_take_no_memory(wires: Wires) -> None:
    world = wires.world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    session = show_id(IdKind.SESSION, world.job_id)
    before = rss_bytes(world)
    for path in ("/v1/chat/completions", "/v1/sessions", f"/v1/sessions/{session}/reward"):
        await asyncio.gather(*(send_unfinished(wires, path) for _ in range(NUM_STRANGERS)))
        grown = rss_bytes(world) - before
        assert grown < 2 * BODY_BYTES, f"{NUM_STRANGERS} strangers at {path} hold {grown >> 20} MiB"


async def test_unfinished_bodies_of_sessions_share_one_bound(wires: Wires) -> None:
    world = wires.world
    world.changes["max_inflight_body_bytes"] = 64 << 20
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    key = await session_key(world)
    before = rss_bytes(world)
    await asyncio.gather(*(send_unfinished(wires, "/v1/chat/completions", key) for _ in range(NUM_STRANGERS)))
    grown = rss_bytes(world) - before
    assert grown < 160 << 20, f"{NUM_STRANGERS} unfinished bodies hold {grown >> 20} MiB"


async def test_half_sent_heads_and_bodies_are_closed_in_time(wires: Wires) -> None:
    world = wires.world
    world.changes |= SHORT_TIMEOUTS
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    key = await session_key(world)
    endless, _ = await wires.open(b"GET /healthz HTTP/1.1\r\n" + b"x: %s\r\n" % (b"a" * 1024) * 100)
    silent, _ = await wires.open()
    late, _ = await wires.open(head("/v1/chat/completions", key, 99) + b"{")
    heads = [
        await wires.open(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g") for _ in range(NUM_HALF_HEADS)
    ]
    answers = await asyncio.gather(*(answer_of(r) for r in [silent, late, endless, *(r for r, _ in heads)]))
    assert b"open" not in answers, f"{answers.count(b'open')} of {len(answers)} connections are still open"
    assert answers[1].startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive in time" in answers[1]
    assert answers[2].startswith(b"HTTP/1.1 431 ")


async def test_client_that_takes_nothing_of_its_stream_is_cut_off(wires: Wires) -> None:
    world = wires.world
    world.changes |= SHORT_TIMEOUTS
    limits: dict[str, Any] = {
        "model": {"max_model_len": 200_000},
        "rollout": {"max_tokens_per_turn": 190_000},
    }
    await world.start_engines(lambda prompt: "word " * 30_000 + "<|im_end|>", **limits)
    key = await session_key(world)
    body = json.dumps({"messages": [USER], "stream": True, "logprobs": True}).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", world.port))
        client.sendall(head("/v1/chat/completions", key, len(body)) + body)
        port = client.getsockname()[1]

        async def is_taken() -> bool:
            return is_connected(world, port)

        async def is_cut_off() -> bool:
            return not is_connected(world, port)

        await world.until(is_taken, what="the gateway to take the connection")

        await world.until(
            is_cut_off, what="the client that takes nothing to be cut off", timeout_s=PATIENCE_S
        )
