"""Compares the gateway, with recording on, with two proxies in front of the same canned engine:
one that only passes bytes, and LiteLLM's, in one worker process.

64 agents talk at once, in episodes of 20 turns whose answers have 50 tokens: whole answers, answers
streamed as fast as the client reads, and streams at 50 tokens/s (3 turns), whose cost shows how
many a core could carry. PostgreSQL commits to disk. Agents, engine and proxy share the machine with
what is measured: turns/s applies to all of them together, processor time only to the process of the
gateway or proxy. One agent alone shows what the gateway adds to the delay of a turn; commits of one
row to the same database, by a client of its own, show how much of it the disk explains.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from psycopg import AsyncConnection

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from tests.benchmarks.canned_engine import NUM_TOKENS, TOKEN_IDS
from tests.benchmarks.held_streams import measure_held
from tests.benchmarks.litellm_proxy import KEY, MODEL, litellm_running, litellm_version
from tests.benchmarks.measuring import Program, Samples, cpu_s, interleaved, program_running
from tests.benchmarks.report import Bound, Goal, Quantity, Row
from tests.fixtures.gateway_world import GatewayWorld, database_migrate
from tests.fixtures.services import services_running

BASELINE = "pass-through proxy (aiohttp), nothing recorded"
LITELLM = f"LiteLLM {litellm_version()} proxy, one worker, nothing recorded"
NUM_AGENTS = 64
TOKENS_PER_S = 50
# ROADMAP: at least 250 live streams at 50 tokens/s a core.
STREAMS_GOAL = Goal(250)
WHOLE_GOAL = Goal(3.5, Bound.AT_MOST, Quantity.RATIO)
LIVE_GOAL = Goal(3, Bound.AT_MOST, Quantity.RATIO)
NUM_LONE_EPISODES = 5
NUM_COMMITS = 100
ADDED_GOAL = Goal(1, Bound.AT_MOST)  # ms, beside one commit
LITELLM_GOAL = Goal(30, Bound.AT_LEAST, Quantity.RATIO)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Mode:
    """How the agents ask; `step_s` is the engine's time between two tokens."""

    name: str
    is_streamed: bool
    step_s: float
    num_turns: int


UNARY = Mode("whole answers", is_streamed=False, step_s=0, num_turns=20)
FEW = Mode("whole answers", is_streamed=False, step_s=0, num_turns=3)  # for LiteLLM, which takes its time
STREAMED = Mode("streamed answers", is_streamed=True, step_s=0, num_turns=20)
LIVE = Mode("live streams", is_streamed=True, step_s=1 / TOKENS_PER_S, num_turns=3)


@dataclass(frozen=True, slots=True)
class Bench:
    """The gateway (in `world`), the two proxies and the engine behind all."""

    world: GatewayWorld
    proxy: Program
    litellm: Program
    engine: Program
    http: aiohttp.ClientSession
    answer: str  # what the canned engine says, as text

    async def gateway(self, mode: Mode) -> dict[str, float]:
        agent = self.world.make_phase(Role.AGENT)
        groups = await self.world.lease(agent, max_sessions=NUM_AGENTS)
        sessions = [session for group in groups for session in group["sessions"]]
        assert self.world.process is not None
        program = Program(self.world.process.pid, self.world.base_url)
        sample = await self._load(program, mode, [session["api_key"] for session in sessions])
        for session in sessions:
            await self.world.finish(agent, session["session_id"], reward=1.0)
        self._check_recorded(agent, mode)
        return sample

    async def pass_through(self, mode: Mode) -> dict[str, float]:
        return await self._load(self.proxy, mode, ["no-key"] * NUM_AGENTS)

    async def added_delay(self) -> dict[str, float]:
        """Measure the median delay that the gateway adds to a turn of an agent that is alone, and
        the median time of a commit."""
        agent = self.world.make_phase(Role.AGENT)
        groups = await self.world.lease(agent, max_sessions=NUM_LONE_EPISODES)
        keys = [session["api_key"] for group in groups for session in group["sessions"]]
        assert self.world.process is not None
        await self._pace(UNARY)
        gateway = Program(self.world.process.pid, self.world.base_url)
        ours_ms, theirs_ms = [
            statistics.median([delay for key in keys for delay in await self._episode(program, UNARY, key)])
            for program in (gateway, self.proxy)
        ]
        for session in (session for group in groups for session in group["sessions"]):
            await self.world.finish(agent, session["session_id"], reward=1.0)
        commit_ms = await _commit_ms(self.world.database_url)
        return {"added_ms": ours_ms - theirs_ms - commit_ms, "commit_ms": commit_ms}

    async def by_litellm(self, mode: Mode) -> dict[str, float]:
        return await self._load(self.litellm, mode, [KEY] * NUM_AGENTS)

    async def _load(self, program: Program, mode: Mode, keys: Sequence[str]) -> dict[str, float]:
        await self._pace(mode)
        cpu_before_s, started_s = cpu_s(program.pid), time.perf_counter()
        await asyncio.gather(*(self._episode(program, mode, key) for key in keys))
        elapsed_s, used_s = time.perf_counter() - started_s, cpu_s(program.pid) - cpu_before_s
        num_turns = len(keys) * mode.num_turns
        return {
            "turns_per_s": num_turns / elapsed_s,
            "cpu_us_per_turn": used_s / num_turns * 1e6,
            "streams_per_core": num_turns * NUM_TOKENS / used_s / TOKENS_PER_S,
        }

    async def _pace(self, mode: Mode) -> None:
        async with self.http.post(f"{self.engine.base_url}/pace/{mode.step_s}", data=b"") as response:
            assert response.status == 200

    async def _episode(self, program: Program, mode: Mode, key: str) -> list[float]:
        """Return how long each turn took, in milliseconds. Every request continues from the canned
        answer, so both sides are sent bytes of the same kind. No two sessions ask the same, because
        equal beginnings are rendered once (decision 0026)."""
        delays_ms: list[float] = []
        messages = [_question()]
        for _ in range(mode.num_turns):
            body = msgspec.json.encode({"model": MODEL, "messages": messages, "stream": mode.is_streamed})
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            url = f"{program.base_url}/v1/chat/completions"
            started_s = time.perf_counter()
            async with self.http.post(url, data=body, headers=headers) as response:
                raw = await response.read()
                assert response.status == 200, raw
            delays_ms.append((time.perf_counter() - started_s) * 1e3)
            messages += [
                {"role": "assistant", "content": self.answer},
                _follow_up(),
            ]
        return delays_ms

    def _check_recorded(self, agent: PhaseClaims, mode: Mode) -> None:
        """Check that all turns of this phase's sessions are stored and that each joined its tree
        cleanly."""
        rows = self.world.sql(
            """SELECT count(*) FILTER (WHERE n.kind = 2 AND n.num_tokens = %s),
                      count(*) FILTER (WHERE n.kind < 2 AND n.drift <> 'clean')
               FROM trajectory_node n JOIN trajectory_session s ON s.id = n.session_id
               JOIN trajectory_group g ON g.id = s.group_id WHERE g.lease_phase_id = %s""",
            [NUM_TOKENS, agent.phase_id],
        )
        assert rows == [(NUM_AGENTS * mode.num_turns, 0)], f"recorded turns and unclean ones: {rows}"


def _question() -> dict[str, Any]:
    """Return a task that no other session has."""
    return {"role": "user", "content": f"Work out task {next(_numbers):06}: " + "12 + 34. " * 20}


def _follow_up() -> dict[str, Any]:
    return {"role": "user", "content": f"And now, in step {next(_numbers):06}?"}


async def measure() -> list[Row]:
    rows: list[Row] = []
    async with _bench() as bench:
        for mode in (UNARY, STREAMED, LIVE):
            samples = await interleaved(
                {
                    "gateway": lambda mode=mode: bench.gateway(mode),  # type: ignore[misc]
                    "proxy": lambda mode=mode: bench.pass_through(mode),  # type: ignore[misc]
                }
            )
            rows += _rows(mode, samples)
        rows += [await _added_row(bench), await _litellm_row(bench)]
    return rows + await measure_held()


async def _added_row(bench: Bench) -> Row:
    samples = (await interleaved({"gateway": bench.added_delay}))["gateway"]
    metric = "whole answers: delay that the gateway adds for one agent, p50, less one commit"
    return Row(metric, "ms", samples["added_ms"], "one commit", samples["commit_ms"], ADDED_GOAL)


async def _commit_ms(database_url: str) -> float:
    """Return the median time to commit one row."""
    delays_ms: list[float] = []
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS benchmark_commit (number int)")
        for number in range(NUM_COMMITS):
            started_s = time.perf_counter()
            await connection.execute("INSERT INTO benchmark_commit VALUES (%s)", [number])
            delays_ms.append((time.perf_counter() - started_s) * 1e3)
    return statistics.median(delays_ms)


async def _litellm_row(bench: Bench) -> Row:
    samples = await interleaved(
        {"gateway": lambda: bench.gateway(UNARY), "litellm": lambda: bench.by_litellm(FEW)}
    )
    ours, theirs = (samples[side]["turns_per_s"] for side in ("gateway", "litellm"))
    return Row("whole answers: rate", "turns/s", ours, LITELLM, theirs, LITELLM_GOAL)


def _rows(mode: Mode, samples: Samples) -> list[Row]:
    def row(metric: str, unit: str, key: str, goal: Goal | None = None) -> Row:
        return Row(
            f"{mode.name}: {metric}", unit, samples["gateway"][key], BASELINE, samples["proxy"][key], goal
        )

    goal = {UNARY: WHOLE_GOAL, LIVE: LIVE_GOAL}.get(mode)
    cost = row("processor time of a turn", "µs/turn", "cpu_us_per_turn", goal)
    if mode is LIVE:
        return [
            row(
                f"at {TOKENS_PER_S} tokens/s, from the processor time of {NUM_AGENTS}",
                "streams/core",
                "streams_per_core",
                STREAMS_GOAL,
            ),
            cost,
        ]
    return [row("rate", "turns/s", "turns_per_s"), cost]


@asynccontextmanager
async def _bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        services = stack.enter_context(services_running(home / "services"))
        database_migrate(services.urls, artifacts=home / "artifacts")
        engine = stack.enter_context(program_running("tests.benchmarks.canned_engine"))
        proxy = stack.enter_context(program_running("tests.benchmarks.pass_through", engine.base_url))
        litellm = stack.enter_context(litellm_running(engine.base_url, folder=home))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20)
        )
        world = GatewayWorld(services.urls["DATABASE_URL"], home, http=http)
        world.make_job(rollout={"group_size": 8, "groups_per_batch": 64}, model={"max_model_len": 2048})
        world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
        await world.start_gateway()
        stack.callback(world.kill_gateway)
        text = model_text_load(str(home / "model"))
        yield Bench(world, proxy, litellm, engine, http, answer=text.decode(TOKEN_IDS.tolist()))
