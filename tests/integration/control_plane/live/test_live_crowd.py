"""Many sockets at one web process: each gets its snapshot, then every delta; at the end each is
told to reconnect."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import redis.asyncio

from seamlessflow.cli.local.identity import same_identity, wrapped
from seamlessflow.cli.local.planes import HTTP_PROTOCOL, web_command
from seamlessflow.control_plane.live.hub import MAX_QUEUED_BATCHES
from seamlessflow.core.protocol.live_events import (
    APPEND,
    JOB_STREAM,
    append_arguments,
    append_keys,
    redis_url,
    seq_key,
)
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures import impatient_connections
from tests.fixtures.gateway_world import SECRET, GatewayWorld
from tests.fixtures.impatient_connections import HEAD_TIMEOUT_S
from tests.fixtures.repository import ROOT
from tests.fixtures.services import ValkeyUrls

NUM_SOCKETS = 200
SOCKETS_PER_ROUND = 10
NUM_ROUNDS = NUM_SOCKETS // SOCKETS_PER_ROUND
NUM_TOPICS = 3
# Detects a web process that hangs, not one that is slow.
HANG_S = 90.0
COME_AGAIN = 1012


@dataclass
class Web:
    """A running web process, and the rows it serves."""

    process: "subprocess.Popen[bytes]"
    base_url: str
    world: GatewayWorld
    log: Path

    @asynccontextmanager
    async def socket(self, http: aiohttp.ClientSession) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        address = f"{self.base_url}/ws/live"
        async with http.ws_connect(address, origin=self.base_url, max_msg_size=0) as socket:
            job = show_id(IdKind.JOB, self.world.job_id)
            await socket.send_json(
                {"token": self.world.api_token, "subscribe": ["jobs", f"job:{job}", "machines"]}
            )
            yield socket

    @property
    def topics(self) -> list[str]:
        job = show_id(IdKind.JOB, self.world.job_id)
        return [f"jobs:{self.world.project_id}", f"job:{job}", "machines"]


@pytest.fixture
async def web(migrated_database_url: str, embedded_valkey: ValkeyUrls, tmp_path: Path) -> AsyncIterator[Web]:
    world = GatewayWorld(migrated_database_url, tmp_path)
    world.make_job()
    world.make_token()
    environ = os.environ | {
        "DATABASE_URL": migrated_database_url,
        "BROKER_URL": embedded_valkey.broker,
        "EVENTS_URL": embedded_valkey.events,
        "SEAMLESSFLOW_SECRET_KEY": SECRET,
        "ARTIFACT_ROOT": str(tmp_path / "artifacts"),
        "MODEL_ROOTS": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "seamlessflow.control_plane.settings",
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
    }
    log = tmp_path / "web.log"
    with log.open("wb") as lines:
        program = [
            impatient_connections.__name__ + ":HttpProtocol" if word == HTTP_PROTOCOL else word
            for word in web_command("http://127.0.0.1:0")
        ]
        command = wrapped(tuple(program), identity=same_identity(), death_signal=9)
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=lines, stderr=lines)  # noqa: ASYNC220
    try:
        yield Web(process, await address_told(process, log), world, log)
    finally:
        process.kill()
        process.wait()


async def address_told(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """The system chose the port; the server reports it once it listens."""
    async with asyncio.timeout(HANG_S):
        while not (told := re.search(r"running on (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            await asyncio.sleep(0.05)
    return told[1]


class Teller:
    """Publishes deltas on all topics of the crowd, as the feeder does."""

    def __init__(self, events_url: str, topics: list[str]) -> None:
        self._redis = redis.asyncio.Redis.from_url(redis_url(events_url))
        self._topics = topics

    async def __aenter__(self) -> "Teller":
        await self._redis.flushdb()
        await self.say(0)  # the first delta names the broker's epoch, and a new epoch gives new snapshots
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._redis.aclose()

    async def say(self, number: int) -> None:
        data = json.dumps({"jobs": [], "number": number}).encode()
        for topic in self._topics:
            arguments = append_arguments(epoch="e", limits=JOB_STREAM, at=number, data=data, topic=topic)
            await self._redis.eval(APPEND, 3, *append_keys(topic), *arguments)  # type: ignore[misc]

    async def numbered(self) -> dict[str, int]:
        numbers = await self._redis.mget([seq_key(topic) for topic in self._topics])
        return {topic: int(number) for topic, number in zip(self._topics, numbers, strict=True)}


@dataclass
class Crowd:
    """What its sockets received: by topic, the number of the snapshot, then those of the deltas."""

    teller: Teller
    heard: list[dict[str, list[int]]] = field(default_factory=list)
    num_ready: int = 0
    num_said: int = 0
    is_all_said: asyncio.Event = field(default_factory=asyncio.Event)
    last: dict[str, int] = field(default_factory=dict)

    async def follow(self, web: Web, http: aiohttp.ClientSession) -> None:
        heard: dict[str, list[int]] = {}
        self.heard.append(heard)
        async with web.socket(http) as socket:
            while len(heard) < NUM_TOPICS:
                hear(heard, await socket.receive_str())
            await self._ready()
            while {topic: numbers[-1] for topic, numbers in heard.items()} != self.last:
                hear(heard, await socket.receive_str())

    async def _ready(self) -> None:
        self.num_ready += 1
        if self.num_ready % SOCKETS_PER_ROUND == 0:
            await self.teller.say(self.num_ready)
            self.num_said += 1
        if self.num_said == NUM_ROUNDS and not self.last:
            self.last |= await self.teller.numbered()
            self.is_all_said.set()
        await self.is_all_said.wait()


def hear(heard: dict[str, list[int]], message: str) -> None:
    for line in message.split("\n"):
        frame = json.loads(line)
        # One snapshot of each topic, before its deltas: a second one would hide what was lost.
        is_known = frame["topic"] in heard
        assert frame["kind"] == ("delta" if is_known else "snapshot"), frame
        heard.setdefault(frame["topic"], []).append(frame["seq"])


async def test_many_sockets_at_once_all_get_their_snapshot_and_then_every_delta(
    web: Web, embedded_valkey: ValkeyUrls
) -> None:
    # Fewer than a mailbox holds, so that no socket may be given a new snapshot instead.
    assert NUM_ROUNDS * NUM_TOPICS < MAX_QUEUED_BATCHES
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        asyncio.timeout(HANG_S),
        Teller(embedded_valkey.events, web.topics) as teller,
        aiohttp.ClientSession(connector=connector) as http,
        asyncio.TaskGroup() as group,
    ):
        crowd = Crowd(teller)
        for _ in range(NUM_SOCKETS):
            group.create_task(crowd.follow(web, http))
    assert len(crowd.heard) == NUM_SOCKETS
    for heard in crowd.heard:
        for topic, numbers in heard.items():
            assert numbers == list(range(numbers[0], crowd.last[topic] + 1))


async def opened(http: aiohttp.ClientSession, web: Web, *, origin: str | None) -> int:
    """Return the status of a handshake; of one that succeeds once its token was accepted."""
    try:
        async with http.ws_connect(f"{web.base_url}/ws/live", origin=origin) as socket:
            await socket.send_json({"token": web.world.api_token, "subscribe": ["jobs"]})
            assert (await socket.receive()).type is aiohttp.WSMsgType.TEXT
            return 101
    except aiohttp.WSServerHandshakeError as refusal:
        return refusal.status


async def test_a_web_process_that_stops_closes_its_sockets_and_does_not_wait_for_silent_ones(
    web: Web,
) -> None:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        polite = [await stack.enter_async_context(web.socket(http)) for _ in range(3)]
        for socket in polite:
            await socket.receive_str()
        assert await opened(http, web, origin=None) == 101, "a program sends no origin"
        other = f"http://{urlsplit(web.base_url).hostname}:9"
        assert await opened(http, web, origin=other) == 403, "a page of another port"
        # It answers nothing, not even the server's close frame.
        mute = await http.ws_connect(f"{web.base_url}/ws/live", origin=web.base_url, autoping=False)
        web.process.send_signal(signal.SIGTERM)
        for socket in polite:
            while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
            # Not the socket's own code, which differs if the client's answer found the connection closed.
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, COME_AGAIN)
        assert await asyncio.to_thread(web.process.wait, HANG_S) in (0, -signal.SIGTERM)
        assert "Traceback" not in web.log.read_text()
        await mute.close()


async def test_a_request_with_an_incomplete_head_is_closed_and_sockets_stay_open(web: Web) -> None:
    address = urlsplit(web.base_url)
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{web.base_url}/ws/live", origin=web.base_url) as open_,
    ):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: local")
            async with asyncio.timeout(20 * HEAD_TIMEOUT_S):
                answer = await reader.read()
        except TimeoutError:
            answer = b"nothing, and the connection stays open"
        finally:
            writer.close()
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b"application/problem+json" in answer
        await open_.ping()
        assert not open_.closed
