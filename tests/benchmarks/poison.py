"""Whether failures change what is trained: agents, judges and machines that fail on purpose, before a real gateway.

PostgreSQL, the gateway with its trees, the runner's session loop, its policy client and the clock of episodes are the
real ones; the engine is scripted. It samples anew whenever it is asked: a turn that ends the session or not, with a
reward, drawn from how often the slot was sampled so far. So a slot's outcome is that of a run without failures only if
nothing that was recorded is sampled again. In: a share of failed attempts, of four kinds in equal parts: the start of
the sandbox, the engine, the agent's machine, the judge; those of engine and machine come with each sampled turn, so
long sessions fail more often. Out: the rewards and lengths of the groups that are ready to train, compared session by
session with a run without failures; and two runs that show what the comparison can see: one takes failures as the
reward 0, one begins failed sessions anew. A last run loses its agents' machine again and again at random moments, and
counts what engines sampled in vain.
"""

import asyncio
import contextlib
import math
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from seamlessflow.core.environment.section import EnvironmentSection, OnFailure
from seamlessflow.core.protocol.credentials import PhaseClaims, front_token, phase_credential_sign
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from seamlessflow_workers.agents.episode import EpisodeRules
from seamlessflow_workers.agents.rewards.graded import GradedEnvironment
from seamlessflow_workers.agents.session_logs import SessionLogSender
from seamlessflow_workers.agents.session_loop import SessionLoop
from tests.benchmarks.poison_agents import Agent, Engine, Faults, Judge, Script, ScriptedRunner
from tests.benchmarks.report import Bound, Goal, Measured, Row
from tests.fixtures.gateway_world import (
    SECRET,
    TEMPLATE_DATABASE,
    GatewayWorld,
    database_copied,
    database_migrate,
    gateway_world_made,
)
from tests.fixtures.services import services_running

GROUP_SIZE = 8
NUM_GROUPS, NUM_GROUPS_SHORT = 250, 6
SHARES = (0.1, 0.3, 0.6, 0.9)
CONTROL_SHARE = 0.3
GRADING_LIMIT_S = 0.1
RUN_WITHIN_S = 900.0
NUM_KILLS, NUM_KILLS_SHORT = 100, 5
NUM_GROUPS_KILLED, NUM_GROUPS_KILLED_SHORT = 64, 4  # whose sessions run while machines are killed
MAX_SESSIONS, MAX_SESSIONS_KILLED = 256, 64  # at once
BETWEEN_KILLS_S = (0.1, 0.6)
STREAMED_TOKENS = 2048  # answers that may be so long are streamed by engines
STEP_S, NUM_PADS = (
    0.1,
    40,
)  # of an engine while machines are killed: the time of a token, and more tokens of answers
SAME, KS_P = "share of sessions with the same reward and length", "KS p of the lengths"
LENGTH = "mean trained length, of the true one"

Trained = dict[tuple[int, int], tuple[float, float]]  # (group, slot) → (reward, turns)


async def measure(*, is_short: bool = False) -> list[Row]:
    with _database() as url:
        return await _measured(url, is_short=is_short)


async def _measured(url: str, *, is_short: bool) -> list[Row]:
    num_groups = NUM_GROUPS_SHORT if is_short else NUM_GROUPS
    shares = SHARES[1:2] if is_short else SHARES
    clean = await trained(url, Faults(), num_groups)
    rows = []
    for share in shares:
        failed = await trained(url, Faults(share), num_groups)
        rows += _rows(f"{share:.0%} failed", clean, failed, _UNCHANGED)
    zeroed = await trained(url, Faults(CONTROL_SHARE, are_zero=True), num_groups)
    rows += _rows(f"control: {CONTROL_SHARE:.0%} failed, taken as 0", clean, zeroed, _CHANGED)
    anew = await trained(url, Faults(CONTROL_SHARE, on_failure=OnFailure.SAMPLE), num_groups)
    rows += _rows(f"control: {CONTROL_SHARE:.0%} failed, begun anew", clean, anew, {})
    kills = (NUM_KILLS_SHORT, NUM_GROUPS_KILLED_SHORT) if is_short else (NUM_KILLS, NUM_GROUPS_KILLED)
    return [*rows, await killed(url, *kills)]


async def trained(url: str, faults: Faults, num_groups: int) -> Trained:
    """Run sessions until the groups are all ready; return their rewards and lengths."""
    began_s = time.monotonic()
    async with _world(url, num_groups, faults.on_failure) as (world, engine):
        async with _runner(world, Script(faults, engine)) as running:
            await _until_ready(world, num_groups, running)
        print(
            f"{faults}: {engine.num_requests} turns sampled, {time.monotonic() - began_s:.0f} s", flush=True
        )
        return _read(world, num_groups)


async def killed(url: str, num_kills: int, num_groups: int) -> Row:
    """Lose the agents' machine at random moments; return the engines' seconds that no trained session has."""
    chance = random.Random("kills")
    async with _world(url, num_groups, OnFailure.RESUME, max_tokens=STREAMED_TOKENS) as (
        world,
        engine,
    ):
        engine.step_s, engine.num_pads = STEP_S, NUM_PADS
        script = Script(Faults(), engine)
        for _ in range(num_kills):
            async with _runner(world, script, max_sessions=MAX_SESSIONS_KILLED, is_killed=True):
                await asyncio.sleep(chance.uniform(*BETWEEN_KILLS_S))
        num_open = world.sql("SELECT count(*) FROM trajectory_group WHERE state = 'open'")[0][0]
        assert num_open, "the sessions ended before the last kill"
        async with _runner(world, script) as running:
            await _until_ready(world, num_groups, running)
        ((num_trained, num_attempts),) = world.sql(
            "SELECT sum(num_sampled_tokens) FILTER (WHERE state = 'closed'), count(*) FROM trajectory_session"
        )
    lost_s, all_s = (STEP_S * num for num in (engine.num_sampled - int(num_trained), engine.num_sampled))
    return Row(
        f"{num_kills} kills of the agents' machine, {num_attempts} attempts: seconds of engines lost",
        "s",
        _once(lost_s),
        "all seconds of engines",
        _once(all_s),
        Goal(0.0, Bound.AT_MOST),
    )


@contextlib.asynccontextmanager
async def _runner(
    world: GatewayWorld, script: Script, *, max_sessions: int = MAX_SESSIONS, is_killed: bool = False
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run the agents of one machine, which is lost in the end if it `is_killed`: nothing reports its sessions."""
    claims = world.make_phase(Role.AGENT)
    client = ScriptedRunner(
        gateway_url=world.base_url,
        control_plane_url=world.base_url,  # nothing is sent to it
        credential=phase_credential_sign(claims, secret=SECRET),
    )
    client.script = script
    section = EnvironmentSection(name="external", grading_timeout_s=GRADING_LIMIT_S)
    environment = GradedEnvironment(Agent(script), Judge(script))
    async with client:
        loop = SessionLoop(
            environment=environment,
            client=client,
            policy_url=f"{world.base_url}/v1",
            timeout_s=RUN_WITHIN_S,
            rules=EpisodeRules.of(section),
            max_sessions=max_sessions,
            min_free_slots=GROUP_SIZE,
            is_evaluation=False,
            on_change=lambda: None,
            logs=SessionLogSender(client.session_logs_send, limit_bytes=0),
        )
        leasing = asyncio.create_task(loop.lease_forever())
        try:
            yield leasing
        finally:
            leasing.cancel()
            await asyncio.wait({leasing})
            world.end_phase(claims, "failed" if is_killed else "ended")
            await loop.wind_up(0.0)
            await environment.close()


async def _until_ready(world: GatewayWorld, num_groups: int, leasing: "asyncio.Task[None]") -> None:
    deadline_s = time.monotonic() + RUN_WITHIN_S
    query = "SELECT count(*) FROM trajectory_group WHERE index < %s AND state = 'ready'"
    while world.sql(query, [num_groups])[0][0] < num_groups:
        if leasing.done():
            leasing.result()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{num_groups} groups were not ready within {RUN_WITHIN_S:g} s")
        await asyncio.sleep(0.3)


def _read(world: GatewayWorld, num_groups: int) -> Trained:
    rows = world.sql(
        """SELECT g.index, s.slot, s.reward, s.num_turns FROM trajectory_session s
           JOIN trajectory_group g ON g.id = s.group_id
           WHERE s.state = 'closed' AND g.state = 'ready' AND g.index < %s""",
        [num_groups],
    )
    return {(index, slot): (reward, turns) for index, slot, reward, turns in rows}


@contextlib.contextmanager
def _database() -> Iterator[str]:
    """Start PostgreSQL and migrate a database, which is copied for each run."""
    with (
        tempfile.TemporaryDirectory(prefix="sf-bench-") as name,
        services_running(Path(name) / "services", "--not-durable") as services,
    ):
        url = services.urls["DATABASE_URL"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE_DATABASE}")
        template = url.replace("/seamlessflow?", f"/{TEMPLATE_DATABASE}?")
        database_migrate(services.urls | {"DATABASE_URL": template}, artifacts=Path(name) / "artifacts")
        yield url


@contextlib.asynccontextmanager
async def _world(
    url: str, num_groups: int, on_failure: OnFailure, *, max_tokens: int = 200
) -> AsyncIterator[tuple[GatewayWorld, Engine]]:
    with tempfile.TemporaryDirectory(prefix="sf-bench-") as name, database_copied(url) as own_url:
        async with gateway_world_made(own_url, {}, Path(name)) as world:
            job: dict[str, Any] = {
                "model": {"max_model_len": 16384},
                "rollout": {
                    "group_size": GROUP_SIZE,
                    "groups_per_batch": num_groups // 2,  # one batch begins beyond the one that is needed
                    "max_tokens_per_turn": max_tokens,
                },
                "train": {"num_updates": 1},
                "environment_fields": {"on_failure": on_failure.value},
                "num_tasks": num_groups,
            }
            await world.start_engines(str, num_engines=0, **job)
            engine = Engine(model_text_load(str(world.folder / "model")))
            await engine.start()
            claims: PhaseClaims = world.make_phase(Role.ROLLOUT, endpoint=engine.base_url, version=0)
            engine.token = front_token(claims.phase_id, claims.fence, secret=SECRET)
            world.engines.append(engine)
            yield world, engine


_UNCHANGED = {SAME: Goal(1.0), KS_P: Goal(0.05)}
_CHANGED = {SAME: Goal(0.95, Bound.AT_MOST)}


def _rows(name: str, clean: Trained, other: Trained, goals: dict[str, Goal]) -> list[Row]:
    same = sum(other.get(key) == value for key, value in clean.items()) / len(clean)
    lengths, others = ([turns for _, turns in each.values()] for each in (clean, other))
    values = {
        SAME: same,
        KS_P: ks_p(lengths, others),
        LENGTH: float(np.mean(others) / np.mean(lengths)),
    }
    return [
        Row(f"{name}: {metric}", "", _once(value), "no failures", _once(1.0), goals.get(metric))
        for metric, value in values.items()
    ]


def _once(value: float) -> Measured:
    return Measured([value], min_repeats=1)


def ks_p(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the p of the two-sample Kolmogorov-Smirnov test, by its limit for large samples."""
    both = np.sort(np.concatenate([left, right]))
    one, two = (np.searchsorted(np.sort(each), both, side="right") / len(each) for each in (left, right))
    size = math.sqrt(len(left) * len(right) / (len(left) + len(right)))
    distance = float(np.abs(one - two).max()) * (size + 0.12 + 0.11 / size)
    if distance < 0.2:  # the series does not converge there, and p is 1 to six digits
        return 1.0
    terms = ((1.0 if k % 2 else -1.0) * math.exp(-2 * k * k * distance**2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))
