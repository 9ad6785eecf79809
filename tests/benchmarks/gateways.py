"""Compares the cost of a turn at two gateways with that at one, both with recording on, in front of the same canned
engine.

64 agents talk at once, in episodes of 20 turns whose answers have 50 tokens, each at the gateway that its session was
told. A second comparison sends all of them to one of the two gateways, which passes half of the requests on. Processor
time is that of all gateway processes together. PostgreSQL commits to disk.
"""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psycopg

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from tests.benchmarks.canned_engine import TOKEN_IDS
from tests.benchmarks.measuring import cpu_s, interleaved, program_running
from tests.benchmarks.report import Bound, Goal, Quantity, Row
from tests.fixtures.gateway_fleet import GatewayFleet
from tests.fixtures.gateway_world import GatewayWorld, database_migrate
from tests.fixtures.services import services_running

BASELINE = "one gateway"
NUM_AGENTS = 64
NUM_TURNS = 20
SHARING_GOAL = Goal(1.1, Bound.AT_MOST, Quantity.RATIO)
TWIN = "two_gateways"  # the second database
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Bench:
    """A fleet of gateways on a database of its own, behind it the engine that all fleets share."""

    fleet: GatewayFleet
    http: aiohttp.ClientSession
    answer: str  # what the canned engine says, as text

    async def measure(self, *, has_one_address: bool = False) -> dict[str, float]:
        """Run all agents once; with `has_one_address` they all ask the first gateway."""
        world = self.fleet.world
        agent = world.make_phase(Role.AGENT)
        groups = await world.lease(agent, max_sessions=NUM_AGENTS)
        sessions = [session for group in groups for session in group["sessions"]]
        assert len(sessions) == NUM_AGENTS
        before_s = self._cpu_s()
        await asyncio.gather(*(self._episode(one, has_one_address) for one in sessions))
        used_s = self._cpu_s() - before_s
        for session in sessions:
            await world.finish(agent, session["session_id"], reward=1.0)
        return {"cpu_us_per_turn": used_s / (NUM_AGENTS * NUM_TURNS) * 1e6}

    def _cpu_s(self) -> float:
        return sum(cpu_s(one.process.pid) for one in self.fleet.gateways if one.process is not None)

    async def _episode(self, session: dict[str, Any], has_one_address: bool) -> None:
        first = f"{self.fleet.gateways[0].url}/v1"
        url = first if has_one_address else session["base_url"] or first
        headers = {"Authorization": f"Bearer {session['api_key']}"}
        # No two sessions ask the same, because equal beginnings are rendered once (decision 0026).
        task = f"Work out task {next(_numbers):06}: " + "12 + 34. " * 20
        messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
        for _ in range(NUM_TURNS):
            body = msgspec.json.encode({"messages": messages})
            async with self.http.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                raw = await response.read()
                assert response.status == 200, raw
            messages += [
                {"role": "assistant", "content": self.answer},
                {"role": "user", "content": f"And now, in step {next(_numbers):06}?"},
            ]


async def measure() -> list[Row]:
    async with _benches() as (one, two):
        samples = await interleaved(
            {
                "one": one.measure,
                "two": two.measure,
                "passed on": lambda: two.measure(has_one_address=True),
            }
        )
    costs = {name: metrics["cpu_us_per_turn"] for name, metrics in samples.items()}
    return [
        Row(
            "processor time of a turn at two gateways",
            "µs/turn",
            costs["two"],
            BASELINE,
            costs["one"],
            SHARING_GOAL,
        ),
        Row(
            "the same, if all agents ask one of the two",
            "µs/turn",
            costs["passed on"],
            BASELINE,
            costs["one"],
        ),
    ]


@asynccontextmanager
async def _benches() -> AsyncIterator[Sequence[Bench]]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        services = stack.enter_context(services_running(home / "services"))
        database_migrate(services.urls, artifacts=home / "artifacts")
        url = services.urls["DATABASE_URL"]
        with psycopg.connect(url.replace("/seamlessflow?", "/postgres?"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TWIN} TEMPLATE seamlessflow")
        engine = stack.enter_context(program_running("tests.benchmarks.canned_engine"))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20)
        )
        benches = []
        for number, database_url in enumerate((url, url.replace("/seamlessflow?", f"/{TWIN}?")), start=1):
            folder = home / str(number)
            folder.mkdir()
            world = GatewayWorld(database_url, folder, http=http)
            world.make_job(rollout={"group_size": 8, "groups_per_batch": 64}, model={"max_model_len": 2048})
            world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
            fleet = GatewayFleet(world)
            stack.callback(fleet.stop)
            stack.callback(world.claims.close)
            await fleet.start(number)
            text = model_text_load(str(folder / "model"))
            benches.append(Bench(fleet, http, text.decode(TOKEN_IDS.tolist())))
        yield benches
