"""Measures streams that are really held open through the gateway: how late their tokens arrive, and
what idle ones take in memory.

It takes the time of live streams and returns rows for the `gateway` benchmark. The gateway has one
core for itself; agents, engine, helpers and database share the others. A token's delay is the time
from the engine's write to the agent's read, found by the token itself (`clocked_engine`).
"""

import asyncio
import base64
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from tests.benchmarks.measuring import Program, program_running
from tests.benchmarks.report import Bound, Goal, Measured, Row
from tests.fixtures.gateway_world import GatewayWorld, database_migrate
from tests.fixtures.services import services_running
from tests.fixtures.tiny_text import write_tiny_text

TOKENS_PER_S = 50
NUM_LIVE = 200
NUM_IDLE = 4000
HELD_S = 60.0
NUM_REPEATS = 3
GROUP_SIZE = 8
NUM_LABELS = 64  # tokens that differ; a token that is later than NUM_LABELS / TOKENS_PER_S looks early
Delays = npt.NDArray[np.float64]
LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PASS_THROUGH = "pass-through proxy (aiohttp), nothing recorded, for a sixth of the time"
DELAY_GOAL = Goal(40, Bound.AT_MOST)
IDLE_GOAL = Goal(2048, Bound.AT_MOST)
MESSAGES = [{"role": "user", "content": "Work this out: " + "12 + 34. " * 20}]
EVENT = b"data: {"


@dataclass(frozen=True, slots=True)
class Held:
    """The gateway (in `world`) and a proxy in front of the same clocked engine."""

    world: GatewayWorld
    gateway: Program
    proxy: Program
    engine: Program
    http: aiohttp.ClientSession
    token_ids: list[int]  # the engine's, in the order of LABELS

    async def begin(self, num_tokens: int) -> None:
        async with self.http.post(f"{self.engine.base_url}/answers/{num_tokens}", data=b"") as response:
            assert response.status == 200

    async def keys(self, num_sessions: int) -> list[str]:
        agent = self.world.make_phase(Role.AGENT)
        groups = await self.world.lease(agent, max_sessions=num_sessions)
        keys = [session["api_key"] for group in groups for session in group["sessions"]]
        assert len(keys) == num_sessions, f"{len(keys)} of {num_sessions} sessions were leased"
        return keys

    def stream(self, program: Program, key: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        body = msgspec.json.encode({"model": "tiny", "messages": MESSAGES, "stream": True})
        headers = {"Authorization": f"Bearer {key}"}
        return self.http.post(f"{program.base_url}/v1/chat/completions", data=body, headers=headers)


async def measure_held(*, held_s: float = HELD_S) -> list[Row]:
    async with _held() as held:
        delays = [await _delays_ms(held, held.gateway, held_s=held_s) for _ in range(NUM_REPEATS)]
        bare = [await _delays_ms(held, held.proxy, held_s=held_s / 6) for _ in range(NUM_REPEATS)]
        rows = [_delay_row(delays, bare, percentile, held_s) for percentile in (50, 99)]
        return [*rows, await _idle_row(held)]


def _delay_row(delays: Sequence[Delays], bare: Sequence[Delays], percentile: int, held_s: float) -> Row:
    ours, theirs = (
        Measured([float(np.percentile(each, percentile)) for each in side]) for side in (delays, bare)
    )
    metric = f"{NUM_LIVE} streams at {TOKENS_PER_S} tokens/s, held {held_s:.0f} s: p{percentile} of a token's delay"
    return Row(metric, "ms", ours, PASS_THROUGH, theirs, DELAY_GOAL if percentile == 99 else None)


async def _delays_ms(held: Held, program: Program, *, held_s: float) -> Delays:
    """Hold all streams for this long; return the delay of each token, in milliseconds."""
    num_tokens = int(held_s * TOKENS_PER_S)
    await held.begin(num_tokens)
    reader = _Listener(held, program)
    keys = await held.keys(NUM_LIVE) if program is held.gateway else ["no-key"] * NUM_LIVE
    heard = await asyncio.gather(*(reader.listen(key) for key in keys))
    assert all(len(each) == num_tokens for each in heard), "a stream lost tokens"
    async with held.http.get(f"{held.engine.base_url}/ticks") as response:
        sent_s = np.asarray(await response.json())
    return np.concatenate([_delays_of(np.asarray(each), sent_s) for each in heard]) * 1e3


def _delays_of(heard: Delays, sent_s: Delays) -> Delays:
    """`heard`: [tokens, 2], when a token arrived and its label. Its tick is the last one with this label before."""
    arrived_s, labels = heard[:, 0], heard[:, 1].astype(np.int64)
    latest = np.searchsorted(sent_s, arrived_s, side="right") - 1
    ticks = latest - (latest - labels) % NUM_LABELS
    return np.asarray(arrived_s - sent_s[ticks])


@dataclass(frozen=True, slots=True)
class _Listener:
    """Reads streams of one program."""

    held: Held
    program: Program

    async def listen(self, key: str) -> list[tuple[float, int]]:
        """Return when each token of one stream arrived, and its label."""
        heard: list[tuple[float, int]] = []
        label = self._labels_of_text if self.program is self.held.gateway else self._label_of_id
        async with self.held.stream(self.program, key) as response:
            assert response.status == 200, await response.read()
            async for line in response.content:
                if line.startswith(EVENT):
                    now_s = time.monotonic()
                    heard += [(now_s, number) for number in label(msgspec.json.decode(line[len("data: ") :]))]
        return heard

    def _labels_of_text(self, chunk: dict[str, Any]) -> list[int]:
        choices = chunk["choices"]
        text = choices[0]["delta"].get("content") or "" if choices else ""
        return [LABELS.index(letter) for letter in text]

    def _label_of_id(self, chunk: dict[str, Any]) -> list[int]:
        packed = base64.b64decode(chunk["choices"][0]["token_ids_b64"])
        return [self.held.token_ids.index(int.from_bytes(packed, "little"))]


async def _idle_row(held: Held) -> Row:
    """Open streams that get nothing, and read the gateway's resident memory before and with them."""
    await held.begin(0)
    process = psutil.Process(held.gateway.pid)
    before_mib = process.memory_info().rss / 2**20
    keys = await held.keys(NUM_IDLE)
    async with AsyncExitStack() as stack:
        for key in keys:
            response = await stack.enter_async_context(held.stream(held.gateway, key))
            assert response.status == 200
        memory_mib = process.memory_info().rss / 2**20
    measured = Measured([memory_mib], min_repeats=1)
    baseline = Measured([before_mib], min_repeats=1)
    return Row(
        f"{NUM_IDLE} idle streams: resident memory", "MiB", measured, "before them", baseline, IDLE_GOAL
    )


@asynccontextmanager
async def _held() -> AsyncIterator[Held]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        services = stack.enter_context(services_running(home / "services"))
        database_migrate(services.urls, artifacts=home / "artifacts")
        text = model_text_load(write_tiny_text(home / "model"))
        token_ids = [text.ids(letter)[0] for letter in LABELS]
        engine = stack.enter_context(
            program_running("tests.benchmarks.clocked_engine", str(1 / TOKENS_PER_S), *map(str, token_ids))
        )
        proxy = stack.enter_context(program_running("tests.benchmarks.pass_through", engine.base_url))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        )
        world = GatewayWorld(services.urls["DATABASE_URL"], home, http=http)
        _make_job(world)
        world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
        await world.start_gateway()
        stack.callback(world.kill_gateway)
        assert world.process is not None
        gateway = Program(world.process.pid, world.base_url)
        stack.enter_context(_cores_apart(gateway.pid))
        yield Held(world, gateway, proxy, engine, http, token_ids)


def _make_job(world: GatewayWorld) -> None:
    num_tokens = int(HELD_S * TOKENS_PER_S)
    world.make_job(
        rollout={
            "group_size": GROUP_SIZE,
            "groups_per_batch": (NUM_IDLE + NUM_REPEATS * NUM_LIVE) // GROUP_SIZE + 1,
            "max_tokens_per_turn": num_tokens + 1,
            "max_concurrent_sessions": NUM_IDLE + NUM_REPEATS * NUM_LIVE,
        },
        model={"max_model_len": num_tokens + 1024},
    )


@contextmanager
def _cores_apart(gateway_pid: int) -> Iterator[None]:
    """Give the gateway's threads the first core, and all other processes of this benchmark the rest."""
    cores = sorted(os.sched_getaffinity(0))
    others = set(cores[1:]) or set(cores)
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        for thread in process.threads():
            os.sched_setaffinity(thread.id, {cores[0]} if process.pid == gateway_pid else others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
