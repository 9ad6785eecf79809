"""Lets 1,000 scripted machines send heartbeats to a web process, each at the interval that it is told, for a minute.

All of them join at once, as after an outage of the control plane. Each second it is counted how many machines count as
lost, by the rule and the clock that the scheduler uses. Everything runs on the cores of this machine: the web process,
PostgreSQL and the machines.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import aiohttp
import msgspec
import psycopg

from seamlessflow.core.protocol.worker import Heartbeat, HeartbeatReply
from seamlessflow.core.scheduling.heartbeats import (
    HEARTBEAT_LIMIT_S,
    LIMIT_INTERVALS,
    MAX_BEATS_PER_S,
    heartbeat_interval_s,
)
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from tests.benchmarks.measuring import cpu_s
from tests.benchmarks.report import Bound, Goal, Measured, Row
from tests.benchmarks.web_world import WebWorld, web_world
from tests.fixtures.repository import ROOT

NUM_MACHINES = 1000
WINDOW_S = 20.0
NUM_WINDOWS = 3
TELLING_S = 20.0  # until each has been told the interval of this fleet
RATE_SLACK = 1.1
_LOST = f"""
    SELECT count(*) FROM cluster_machine m LEFT JOIN cluster_machineheartbeat h ON h.machine_id = m.id
    WHERE h.machine_id IS NULL OR extract(epoch FROM now() - h.received_at)
          > greatest({HEARTBEAT_LIMIT_S}, {LIMIT_INTERVALS} * h.interval_s)
"""


@dataclass(slots=True)
class Machine:
    """Sends one heartbeat after another, as a supervisor does. `took_s`: how long each took."""

    secret: str
    boot_id: UUID = field(default_factory=uuid4)
    interval_s: float = 1.0
    took_s: list[float] = field(default_factory=list)

    async def run(self, http: aiohttp.ClientSession, base_url: str) -> None:
        await asyncio.sleep(random.random())
        while True:
            await self._send(http, base_url)
            await asyncio.sleep(self.interval_s)

    async def _send(self, http: aiohttp.ClientSession, base_url: str) -> None:
        now_s = time.monotonic()
        heartbeat = Heartbeat(
            boot_id=self.boot_id,
            monotonic_s=now_s,
            open_state=LedgerState.IDLE,
            open_cause=IdleCause.NO_JOB,
            open_since_s=now_s - len(self.took_s),
        )
        async with http.post(
            f"{base_url}/api/worker/v1/heartbeat",
            data=msgspec.json.encode(heartbeat),
            headers={"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"},
        ) as answer:
            answer.raise_for_status()
            reply = msgspec.json.decode(await answer.read(), type=HeartbeatReply)
        self.interval_s = reply.interval_s
        self.took_s.append(time.monotonic() - now_s)


async def measure() -> Sequence[Row]:
    async with web_world() as world, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        machines = [Machine(secret) for secret in await _register(world, NUM_MACHINES)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(machine.run(http, world.base_url)) for machine in machines]
            await asyncio.sleep(TELLING_S)
            told_s = {machine.interval_s for machine in machines}
            windows = [await _window(world, machines) for _ in range(NUM_WINDOWS)]
            for task in tasks:
                task.cancel()
    assert told_s == {heartbeat_interval_s(NUM_MACHINES)}, told_s
    return _rows(windows)


@dataclass(frozen=True, slots=True)
class Window:
    beats_per_s: float
    web_percent: float
    slowest_ms: float
    num_lost: int


async def _register(world: WebWorld, num: int) -> list[str]:
    command = [sys.executable, "-m", "tests.benchmarks.heartbeat_machines", str(num)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=dict(world.environ), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    secrets: list[str] = json.loads(told.splitlines()[-1])
    return secrets


async def _window(world: WebWorld, machines: Sequence[Machine]) -> Window:
    before = [len(machine.took_s) for machine in machines]
    began_s, cpu_before_s = time.monotonic(), cpu_s(world.web_pid)
    num_lost = 0
    while (elapsed_s := time.monotonic() - began_s) < WINDOW_S:
        num_lost = max(num_lost, await asyncio.to_thread(_num_lost, world))
        await asyncio.sleep(1.0)
    took_s = [one for machine, num in zip(machines, before, strict=True) for one in machine.took_s[num:]]
    return Window(
        beats_per_s=len(took_s) / elapsed_s,
        web_percent=100 * (cpu_s(world.web_pid) - cpu_before_s) / elapsed_s,
        slowest_ms=max(took_s) * 1000,
        num_lost=num_lost,
    )


def _num_lost(world: WebWorld) -> int:
    with psycopg.connect(world.data.database_url, autocommit=True) as connection:
        row = connection.execute(_LOST).fetchone()
    assert row is not None
    return int(row[0])


def _rows(windows: Sequence[Window]) -> list[Row]:
    fleet, none = f"{NUM_MACHINES} machines", Measured([0.0] * NUM_WINDOWS)
    wanted = Measured([MAX_BEATS_PER_S] * NUM_WINDOWS)
    lost = Measured([window.num_lost for window in windows])
    rate = Measured([window.beats_per_s for window in windows])
    share = Measured([window.web_percent for window in windows])
    slowest = Measured([window.slowest_ms for window in windows])
    most = Goal(RATE_SLACK * MAX_BEATS_PER_S, Bound.AT_MOST)
    return [
        Row(f"{fleet}, at most lost at once", "machines", lost, "none", none, Goal(0, Bound.AT_MOST)),
        Row(f"{fleet}, heartbeats", "1/s", rate, "the bound", wanted, most),
        Row(f"{fleet}, web process", "% of a core", share, "none", none),
        Row(f"{fleet}, slowest heartbeat", "ms", slowest, "none", none),
    ]
