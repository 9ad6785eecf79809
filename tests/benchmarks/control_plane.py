"""Measures what 200 websocket clients of a live job cost the web process, and whether any falls
behind unnoticed.

A separate load changes rows and runs the feeder, as the scheduler does; the web process only serves
sockets. The cost is the web process's processor share with 200 clients, minus that with none. A
client is silently behind if a delta is missing that neither a snapshot nor a notice replaced, or if
it lacks what the broker had numbered two seconds before the end.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec
import redis.asyncio

from seamlessflow.control_plane.live.frames import Position
from seamlessflow.core.protocol.live_events import EPOCH_KEY, redis_url, seq_key
from seamlessflow.core.protocol.live_rows import FrameKind
from seamlessflow.core.types.ids import IdKind, show_id
from tests.benchmarks.measuring import Sample, cpu_s, interleaved, program_running
from tests.benchmarks.report import Bound, Goal, Row
from tests.benchmarks.web_world import WebWorld, web_world

NUM_CLIENTS = 200
WINDOW_S = 12.0
STEADY_AFTER_S = 2.0
NUM_REPEATS = 3
BASELINE = "the same load, no client"
SHARE_GOAL = Goal(5, Bound.AT_MOST)
NONE_GOAL = Goal(0, Bound.AT_MOST)
COMPRESSION = 15  # window bits: browsers offer it too


class _Head(msgspec.Struct):
    """What a client reads of each frame."""

    topic: str
    epoch: str
    seq: int
    kind: FrameKind


_decode = msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class Client:
    """Follows the numbering of its topics as a browser does."""

    positions: dict[str, Position] = field(default_factory=dict)
    num_frames: int = 0
    num_gaps: int = 0
    was_told: bool = False  # of an outage of the broker

    def hear(self, raw: str) -> None:
        frame = _decode(raw)
        if frame.kind is FrameKind.NOTICE:
            self.was_told = True
            return
        if frame.kind is FrameKind.ERROR:
            raise RuntimeError(raw)
        known = self.positions.get(frame.topic)
        follows = known is not None and (known.epoch, known.seq + 1) == (frame.epoch, frame.seq)
        if frame.kind is FrameKind.DELTA:
            self.num_frames += 1
            self.num_gaps += not follows
        self.positions[frame.topic] = Position(frame.epoch, frame.seq)

    def is_behind(self, numbered: Mapping[str, int]) -> bool:
        return self.num_gaps > 0 or any(self.positions[topic].seq < seq for topic, seq in numbered.items())


async def measure() -> list[Row]:
    async with web_world() as world:
        with program_running("tests.benchmarks.live_load", str(world.data.job_id), environ=world.environ):
            samples = await interleaved(
                {
                    "clients": lambda: _sample(world, NUM_CLIENTS),
                    BASELINE: lambda: _sample(world, 0),
                },
                num_repeats=NUM_REPEATS,
            )
    ours, theirs = samples["clients"], samples[BASELINE]

    def row(metric: str, unit: str, name: str, goal: Goal | None) -> Row:
        return Row(name, unit, ours[metric], BASELINE, theirs[metric], goal)

    return [
        row("share", "% of a core", f"web process with {NUM_CLIENTS} clients", SHARE_GOAL),
        row("behind", "", "clients silently behind", NONE_GOAL),
        row("frames_per_s", "1/s", "frames delivered", None),
    ]


async def _sample(world: WebWorld, num_clients: int) -> Sample:
    clients = [Client() for _ in range(num_clients)]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        tasks = [asyncio.create_task(_listen(http, world, client)) for client in clients]
        # All have their snapshots before the clock starts: what is measured is following, not coming.
        while not all(len(client.positions) == 3 for client in clients):
            _raise_early(tasks)
            await asyncio.sleep(0.1)
        for client in clients:
            client.num_frames = 0
        used_before_s, started_s = cpu_s(world.web_pid), time.perf_counter()
        await asyncio.sleep(WINDOW_S)
        used_s, elapsed_s = cpu_s(world.web_pid) - used_before_s, time.perf_counter() - started_s
        num_frames = sum(client.num_frames for client in clients)
        numbered = await _numbered(world)
        await asyncio.sleep(STEADY_AFTER_S)
        _raise_early(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "share": used_s / elapsed_s * 100,
        "behind": sum(client.is_behind(numbered) and not client.was_told for client in clients),
        "frames_per_s": num_frames / elapsed_s,
    }


def _raise_early(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        if task.done():
            task.result()
            raise RuntimeError("a socket was closed by the server")


async def _listen(http: aiohttp.ClientSession, world: WebWorld, client: Client) -> None:
    job = show_id(IdKind.JOB, world.data.job_id)
    address = f"{world.base_url}/ws/live"
    async with http.ws_connect(
        address, origin=world.base_url, max_msg_size=0, compress=COMPRESSION
    ) as socket:
        await socket.send_json(
            {"token": world.data.api_token, "subscribe": ["jobs", f"job:{job}", "machines"]}
        )
        async for message in socket:
            for line in message.data.split("\n"):
                client.hear(line)


async def _numbered(world: WebWorld) -> dict[str, int]:
    """Return how far each topic was numbered."""
    topics = (
        f"jobs:{world.data.project_id}",
        f"job:{show_id(IdKind.JOB, world.data.job_id)}",
        "machines",
    )
    broker: redis.asyncio.Redis = redis.asyncio.Redis.from_url(redis_url(world.environ["EVENTS_URL"]))
    try:
        assert await broker.get(EPOCH_KEY) is not None
        numbers = await broker.mget([seq_key(topic) for topic in topics])
    finally:
        await broker.aclose()
    return {topic: int(number or 0) for topic, number in zip(topics, numbers, strict=True)}
