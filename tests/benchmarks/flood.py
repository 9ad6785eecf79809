"""What agents that never stop asking cost another job of the same gateway.

One job has 32 sessions of 100 threads each that ask for 8 answers at a time and obey no refusal, in front of an engine
that answers at once: the gateway is the only limit. The other has 8 agents that read streams at 500 tokens/s. Goals:
the other job keeps 0.9 of the rate that it has alone, and `/healthz` answers within a second. The flood's own processor
load is at the least priority; what such load alone takes from the other job is measured too, by a loop that sends
nothing.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp

from seamlessflow.core.types.tags import Role
from tests.benchmarks.flood_client import LEAST_PRIORITY
from tests.benchmarks.measuring import interleaved, program_running
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.fixtures.gateway_world import GatewayWorld, database_migrate
from tests.fixtures.repository import ROOT
from tests.fixtures.services import services_running

NUM_FLOODING, NUM_THREADS, NUM_AGENTS = 32, 100, 8
MEASURED_S, WARM_UP_S, ASK_EVERY_S = 8.0, 6.0, 0.1
STEP_S = 0.002
RATE_GOAL = Goal(0.9, Bound.AT_LEAST, Quantity.RATIO)
HEALTH_GOAL = Goal(1000, Bound.AT_MOST)
ALONE = "the same job alone"


@dataclass(frozen=True, slots=True)
class Bench:
    world: GatewayWorld
    http: aiohttp.ClientSession
    keys: Sequence[str]  # of the job that is measured
    flooding: Sequence[str]

    async def alone(self) -> dict[str, float]:
        return await self._measure()

    async def loaded(self) -> dict[str, float]:
        """Measure beside a process that takes a core's spare time and sends nothing."""
        with _running("-c", f"import os; os.nice({LEAST_PRIORITY})\nwhile True: pass"):
            return await self._measure()

    async def flooded(self) -> dict[str, float]:
        flood = ["-m", "tests.benchmarks.flood_client", "127.0.0.1", str(self.world.port), str(NUM_THREADS)]
        with _running(*flood, *self.flooding):
            await asyncio.sleep(WARM_UP_S)
            return await self._measure()

    async def _measure(self) -> dict[str, float]:
        ends_s = time.perf_counter() + MEASURED_S
        *counts, health_ms = await asyncio.gather(
            *(self._agent(key, ends_s) for key in self.keys), self._health_ms(ends_s)
        )
        return {"turns_per_s": sum(counts) / MEASURED_S, "health_ms": health_ms}

    async def _agent(self, key: str, ends_s: float) -> float:
        """Return how many turns ended in time."""
        num = 0
        while True:
            body = {"messages": [{"role": "user", "content": f"{uuid4()}"}], "stream": True}
            async with self.http.post(
                self.world.base_url + "/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {key}"},
            ) as response:
                raw = await response.read()
                assert response.status == 200, raw
            if time.perf_counter() > ends_s:
                return num
            num += 1

    async def _health_ms(self, ends_s: float) -> float:
        """Return the longest time that a probe took, each on a connection of its own."""
        longest_s = 0.0
        while time.perf_counter() < ends_s:
            began_s = time.perf_counter()
            async with self.http.get(
                self.world.base_url + "/healthz", headers={"Connection": "close"}
            ) as response:
                assert response.status == 200
            longest_s = max(longest_s, time.perf_counter() - began_s)
            await asyncio.sleep(ASK_EVERY_S)
        return longest_s * 1e3


@contextmanager
def _running(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def measure() -> list[Row]:
    async with _bench() as bench:
        samples = await interleaved(
            {"alone": bench.alone, "loaded": bench.loaded, "flooded": bench.flooded}, num_repeats=3
        )
    alone, loaded, flooded = samples["alone"], samples["loaded"], samples["flooded"]
    return [
        _row("rate of a job beside a flood", "turns/s", flooded, alone, "turns_per_s", RATE_GOAL),
        _row("longest time of /healthz", "ms", flooded, alone, "health_ms", HEALTH_GOAL),
        _row("rate of a job beside load without requests", "turns/s", loaded, alone, "turns_per_s"),
    ]


def _row(
    name: str,
    unit: str,
    ours: dict[str, Measured],
    theirs: dict[str, Measured],
    key: str,
    goal: Goal | None = None,
) -> Row:
    return Row(name, unit, ours[key], ALONE, theirs[key], goal)


@asynccontextmanager
async def _bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        services = stack.enter_context(services_running(home / "services"))
        database_migrate(services.urls, artifacts=home / "artifacts")
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
            )
        )
        world = GatewayWorld(services.urls["DATABASE_URL"], home, http=http)
        world.make_job(
            rollout={"group_size": NUM_FLOODING, "groups_per_batch": 4},
            environment_fields={"max_turns": 1000},
        )
        flooding = [stack.enter_context(program_running("tests.benchmarks.canned_engine")) for _ in range(2)]
        async with http.post(f"{flooding[1].base_url}/pace/{STEP_S}", data=b"") as response:
            assert response.status == 200
        keys: list[list[str]] = []
        for engine, num_sessions in zip(flooding, (NUM_FLOODING, NUM_AGENTS), strict=True):
            if keys:
                _other_job(world)
            world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
            agent = world.make_phase(Role.AGENT)
            if not keys:
                await world.start_gateway()
                stack.callback(world.kill_gateway)
            groups = await world.lease(agent, max_sessions=num_sessions)
            keys.append([session["api_key"] for group in groups for session in group["sessions"]])
        yield Bench(world, http, keys[1][:NUM_AGENTS], keys[0])


def _other_job(world: GatewayWorld) -> None:
    """Make a second job like the first, and let the world speak for it."""
    first, world.job_id = world.job_id, uuid4()
    world.sql(
        """INSERT INTO jobs_job SELECT (jsonb_populate_record(j, jsonb_build_object('id', %s::text))).*
           FROM jobs_job j WHERE id = %s""",
        [world.job_id, first],
    )
