"""Browsers and model clients that are many, slow, asleep or gone: faults 10 and 11."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect as connect_sync
from websockets.typing import Origin

from tests.benchmarks.faults.model_clients import Enough, endless_job, session_opened, streamed
from tests.benchmarks.faults.trial import Fault, Trial
from tests.benchmarks.faults.world import World

GATEWAY = ("-m seamlessflow.data_plane ", "--host")  # not its helpers
NUM_SOCKETS = 500
NUM_ASLEEP = NUM_SLOW = 20
SLOW_BYTES_PER_S = 1000
SMALL_BUFFER_BYTES = 4096
WATCHED_S = 30.0
RESYNC_WITHIN_S = 10.0
MAX_GROWTH_PER_SOCKET_BYTES = 512 * 1024
ABORTED_WITHIN_S = 2.0
NUM_SLOW_READERS = 8
MAX_GATEWAY_GROWTH_BYTES = 64 * 1024 * 1024
IN_FLIGHT = re.compile(r"^seamlessflow_gateway_turns_in_flight (\S+)$", re.MULTILINE)


def socket_url(world: World) -> str:
    return world.web_url.replace("http://", "ws://") + "/ws/live"


def subscription(world: World, job_id: str) -> str:
    return json.dumps({"token": world.token, "subscribe": [f"job:{job_id}"]})


def snapshot_taken(world: World, job_id: str) -> bool:
    """Return whether a page that opens now gets the job's snapshot."""
    try:
        with connect_sync(socket_url(world), origin=Origin(world.web_url), open_timeout=5) as browser:
            browser.send(subscription(world, job_id))
            first = str(browser.recv(timeout=5)).splitlines()[0]
            return bool(json.loads(first)["kind"] == "snapshot")
    except (OSError, TimeoutError, WebSocketException):
        return False


def many_slow_browsers(trial: Trial) -> None:
    """Most sockets listen, some read a kilobyte a second, some read nothing; the server's memory
    stays bounded."""
    job_id = trial.under_way(trial.spec(num_updates=150))
    (web,) = trial.processes("control_plane.asgi:application")
    before = web.memory_info().rss
    peak, caught_up_s = asyncio.run(_watched(trial, job_id, web))
    trial.figures.append(f"web {before >> 20} MiB, at most {peak >> 20} MiB with {NUM_SOCKETS} sockets")
    limit = MAX_GROWTH_PER_SOCKET_BYTES * NUM_SOCKETS
    trial.require(peak - before <= limit, f"the web grew by {(peak - before) >> 20} MiB")
    trial.require(caught_up_s is not None, f"who slept was not in step within {RESYNC_WITHIN_S:g} s")
    if caught_up_s is not None:
        trial.figures.append(f"who slept was in step {caught_up_s:.1f} s after waking")


async def _watched(trial: Trial, job_id: str, web: psutil.Process) -> tuple[int, float | None]:
    sockets = [
        await _opened(trial.world, job_id, is_small=place < NUM_ASLEEP + NUM_SLOW)
        for place in range(NUM_SOCKETS)
    ]
    asleep, slow, awake = (
        sockets[:NUM_ASLEEP],
        sockets[NUM_ASLEEP : NUM_ASLEEP + NUM_SLOW],
        sockets[NUM_ASLEEP + NUM_SLOW :],
    )
    readers = [asyncio.ensure_future(_read(one)) for one in awake]
    readers += [asyncio.ensure_future(_read(one, pause_s=1.0)) for one in slow]
    peak, until_s = 0, time.monotonic() + WATCHED_S
    try:
        while time.monotonic() < until_s:
            peak = max(peak, web.memory_info().rss)
            await asyncio.sleep(0.2)
        return peak, await _caught_up(trial, job_id, asleep[0])
    finally:
        for reader in readers:
            reader.cancel()
        for one in sockets:
            one.transport.abort()
        await asyncio.gather(*readers, return_exceptions=True)


async def _opened(world: World, job_id: str, *, is_small: bool) -> ClientConnection:
    """With `is_small`, the socket has a window of a few kilobytes, so unread bytes wait in the
    server."""
    parts = urlsplit(world.web_url)
    plain = socket.socket()
    if is_small:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    plain.connect((parts.hostname, parts.port))
    one = await connect(
        socket_url(world),
        origin=Origin(world.web_url),
        sock=plain,
        max_queue=1,
        open_timeout=60,
        ping_interval=None,
    )
    await one.send(subscription(world, job_id))
    return one


async def _read(one: ClientConnection, *, pause_s: float = 0.0) -> None:
    """Read to the end; with a pause, at about SLOW_BYTES_PER_S."""
    async for message in one:
        await asyncio.sleep(pause_s * len(message) / SLOW_BYTES_PER_S if pause_s else 0)


async def _caught_up(trial: Trial, job_id: str, one: ClientConnection) -> float | None:
    """Return after how many seconds a socket that slept, or its replacement, received the newest
    version."""
    began_s = time.monotonic()
    version = await asyncio.to_thread(trial.version, job_id)
    try:
        async with asyncio.timeout(RESYNC_WITHIN_S):
            while True:
                try:
                    async for message in one:
                        if _newest(str(message)) >= version:
                            return time.monotonic() - began_s
                except WebSocketException:
                    pass
                one = await _opened(trial.world, job_id, is_small=False)
    except TimeoutError:
        return None


def _newest(message: str) -> int:
    found = [int(number) for number in re.findall(r'"latest_version":\s*(\d+)', message)]
    return max(found, default=-1)


def model_client_vanishes(trial: Trial) -> None:
    """The client's request is not sampled any further."""
    job_id = endless_job(trial)

    def enough(text: str) -> None:
        if len(text) > 40:
            raise Enough

    for place in range(3):
        streamed(
            session_opened(trial.world, job_id, group=f"vanished-{place}"), max_tokens=1200, on_text=enough
        )
        _, took_s = trial.eventually(
            lambda: _in_flight(trial.world) == 0, within_s=ABORTED_WITHIN_S, what="the end of its turn"
        )
        trial.figures.append(f"aborted after {took_s:.1f} s")
    trial.cancel(job_id)


def model_clients_read_a_byte_a_second(trial: Trial) -> None:
    """The clients use hardly any memory, and another client's stream is not delayed."""
    job_id = endless_job(trial)
    (gateway,) = trial.processes(*GATEWAY)
    before = gateway.memory_info().rss
    slow = [_slow_reader(trial.world, job_id, f"slow-{place}") for place in range(NUM_SLOW_READERS)]
    try:
        heard = streamed(session_opened(trial.world, job_id, group="quick"), max_tokens=300)
        trial.require(heard.error is None, f"the other client's stream failed: {heard.error}")
        for _ in range(10):
            for one in slow:
                one.recv(1)
            time.sleep(1)
        growth = gateway.memory_info().rss - before
    finally:
        _close(slow)
    trial.figures.append(f"gateway +{growth >> 20} MiB")
    trial.require(growth <= MAX_GATEWAY_GROWTH_BYTES, f"the gateway grew by {growth >> 20} MiB")
    trial.eventually(
        lambda: _in_flight(trial.world) == 0, within_s=ABORTED_WITHIN_S, what="the end of their turns"
    )
    trial.cancel(job_id)


def _slow_reader(world: World, job_id: str, group: str) -> socket.socket:
    session = session_opened(world, job_id, group=group)
    parts = urlsplit(session["base_url"])
    body = json.dumps(
        {
            "model": "policy",
            "messages": [{"role": "user", "content": "Talk on."}],
            "max_tokens": 1200,
            "stream": True,
        }
    )
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    one.connect((parts.hostname, parts.port))
    one.settimeout(30)
    one.sendall(
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Authorization: Bearer {session['api_key']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return one


def _close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _in_flight(world: World) -> float:
    text = httpx.get(
        f"{world.gateway_url}/metrics", headers={"Authorization": f"Bearer {world.token}"}, timeout=10
    ).text
    found = IN_FLIGHT.search(text)
    return float(found[1]) if found else -1.0


FAULTS = (
    Fault("10", "500 sockets, some slow, some asleep", many_slow_browsers),
    Fault("11a", "a model client vanishes", model_client_vanishes, ends="cancelled"),
    Fault("11b", "model clients read a byte a second", model_clients_read_a_byte_a_second, ends="cancelled"),
)
