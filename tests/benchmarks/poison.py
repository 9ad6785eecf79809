"""Whether failures change what is trained: scripted agents and judges that fail on purpose, before a real gateway.

PostgreSQL, the gateway, the runner's session loop and the clock of episodes are the real ones. In: a share of failed
attempts, of four kinds: the start of the sandbox, the engine, the agent's machine, the judge. Long sessions fail more
often than short ones. Out: the rewards and lengths of the groups that are ready to train, compared session by session
with a run without failures. No model is run: a session is drawn from the seed of its slot, so its next attempt is the
same session. Two further runs show what the comparison can see: one takes failures as the reward 0, one draws each
attempt anew.
"""

import asyncio
import contextlib
import math
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from seamlessflow.core.environment.episodes import BrokenEpisode, Outcome, PolicyEndpoint, Task
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.environment.section import EnvironmentSection
from seamlessflow.core.environment.stages import Stage, stage
from seamlessflow.core.protocol.credentials import phase_credential_sign
from seamlessflow.core.protocol.data_plane import GroupLeaseReply, GroupLeaseRequest
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.agents.episode import EpisodeRules
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.agents.rewards.graded import GradedEnvironment
from seamlessflow_workers.agents.session_logs import SessionLogSender
from seamlessflow_workers.agents.session_loop import SessionLoop
from tests.benchmarks.report import Goal, Measured, Row
from tests.fixtures.gateway_world import SECRET, GatewayWorld, database_migrate, gateway_world_made
from tests.fixtures.services import services_running

GROUP_SIZE = 8
NUM_GROUPS, NUM_GROUPS_SHORT = 250, 6
SHARES = (0.1, 0.3, 0.6, 0.9)
MOST_FAILED = 0.97  # of the attempts of the longest sessions, so that each of them ends
MEDIAN_TURNS, SPREAD = 5.0, 1.0  # of a lognormal distribution
MEAN_TURNS = MEDIAN_TURNS * math.exp(SPREAD**2 / 2)
GRADING_LIMIT_S = 0.1
RUN_WITHIN_S = 400.0
CONTROL_SHARE = 0.3
SAME, KS_P = "share of sessions with the same reward", "KS p of the lengths"
LENGTH = "mean trained length, of the true one"
KINDS = (FailureKind.SETUP, FailureKind.ENGINE, FailureKind.MACHINE, FailureKind.GRADING)

Trained = dict[tuple[int, int], tuple[float, float]]  # (group, slot) → (reward, turns)


@dataclass(frozen=True, slots=True)
class Faults:
    share: float = 0.0
    are_zero: bool = False  # the control: a failure is an outcome of 0
    are_drawn_anew: bool = False  # each attempt is another session


@dataclass(slots=True)
class Script:
    """Draws the sessions and their failures. `attempts`: group, slot and attempt of each session's key."""

    faults: Faults
    attempts: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def session(self, key: str) -> tuple[int, float]:
        """Return the turns and the reward of a session."""
        group, slot, attempt = self.attempts[key]
        chance = random.Random(f"{group} {slot} {attempt if self.faults.are_drawn_anew else 0}")
        turns = max(1, round(chance.lognormvariate(math.log(MEDIAN_TURNS), SPREAD)))
        return turns, float(chance.random() < 1 / (1 + turns / MEDIAN_TURNS))

    def failure(self, key: str, turns: int) -> FailureKind | None:
        chance = random.Random(f"failure {self.attempts[key]}")
        share = min(MOST_FAILED, self.faults.share * (0.6 + 0.4 * turns / MEAN_TURNS))
        return chance.choice(KINDS) if chance.random() < share else None


class Agent:
    """Answers with its session's key, and fails as the script says."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        turns, _ = self._script.session(policy.api_key)
        failure = self._script.failure(policy.api_key, turns)
        if failure is not None and self._script.faults.are_zero:
            return Outcome(0.0, is_timeout=True, metrics={"turns": turns})
        with stage(Stage.SETUP):
            if failure is FailureKind.SETUP:
                raise BrokenEpisode("the sandbox did not start")
        await asyncio.sleep(0)
        if failure is FailureKind.ENGINE:
            raise BrokenEpisode("the policy did not answer", kind=FailureKind.ENGINE)
        if failure is FailureKind.MACHINE:
            raise asyncio.CancelledError  # as if its machine was drained or lost
        return Outcome(0.0, metrics={"turns": turns}, answer=policy.api_key)

    async def close(self) -> None:
        """Nothing to close."""


class Judge:
    """Half of its failures are errors; in the others it hangs until the limit of grading."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def grade(self, task: Task, answer: str) -> float:
        turns, reward = self._script.session(answer)
        if self._script.failure(answer, turns) is FailureKind.GRADING:
            if sum(self._script.attempts[answer]) % 2:
                await asyncio.sleep(RUN_WITHIN_S)
            raise BrokenEpisode("the judge is away")
        return reward

    async def close(self) -> None:
        """Nothing to close."""


class ScriptedRunner(RunnerClient):
    """Notes which slot each leased session belongs to."""

    script: Script

    async def groups_lease(self, request: GroupLeaseRequest, *, held: Sequence[UUID]) -> GroupLeaseReply:
        reply = await super().groups_lease(request, held=held)
        for group in reply.groups:
            for session in group.sessions:
                self.script.attempts[session.api_key] = (group.index, session.slot, session.attempt)
        return reply


async def measure(*, is_short: bool = False) -> list[Row]:
    num_groups = NUM_GROUPS_SHORT if is_short else NUM_GROUPS
    shares = SHARES[1:2] if is_short else SHARES
    clean = await trained(Faults(), num_groups)
    rows = []
    for share in shares:
        rows += _rows(f"{share:.0%} failed", clean, await trained(Faults(share), num_groups), is_goal=True)
    zeroed = await trained(Faults(CONTROL_SHARE, are_zero=True), num_groups)
    rows += _rows(f"control: {CONTROL_SHARE:.0%} failed, taken as 0", clean, zeroed, is_goal=False)
    anew = await trained(Faults(CONTROL_SHARE, are_drawn_anew=True), num_groups)
    return rows + _rows(f"{CONTROL_SHARE:.0%} failed, drawn anew", clean, anew, is_goal=False)


async def trained(faults: Faults, num_groups: int) -> Trained:
    """Run sessions until the first groups are all ready; return their rewards and lengths."""
    async with _world(num_groups) as world:
        script = Script(faults)
        claims = world.make_phase(Role.AGENT)
        client = ScriptedRunner(
            gateway_url=world.base_url,
            control_plane_url="http://unused",
            credential=phase_credential_sign(claims, secret=SECRET),
        )
        client.script = script
        section = EnvironmentSection(name="external", grading_timeout_s=GRADING_LIMIT_S)
        async with client:
            loop = SessionLoop(
                environment=GradedEnvironment(Agent(script), Judge(script)),
                client=client,
                policy_url=f"{world.base_url}/v1",
                timeout_s=RUN_WITHIN_S,
                rules=EpisodeRules.of(section),
                max_sessions=256,
                least_room=GROUP_SIZE,
                is_evaluation=False,
                on_change=lambda: None,
                logs=SessionLogSender(client.session_logs_send, limit_bytes=0),
            )
            leasing = asyncio.create_task(loop.lease_forever())
            try:
                await _until_ready(world, num_groups, leasing)
            finally:
                leasing.cancel()
                await asyncio.wait({leasing})
                await loop.wind_up(0.0)
        return _read(world, num_groups)


async def _until_ready(world: GatewayWorld, num_groups: int, leasing: asyncio.Task[None]) -> None:
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
        """SELECT g.index, s.slot, s.reward, (s.metrics->>'turns')::float8 FROM trajectory_session s
           JOIN trajectory_group g ON g.id = s.group_id
           WHERE s.state = 'closed' AND g.state = 'ready' AND g.index < %s""",
        [num_groups],
    )
    return {(index, slot): (reward, turns) for index, slot, reward, turns in rows}


@contextlib.asynccontextmanager
async def _world(num_groups: int) -> AsyncIterator[GatewayWorld]:
    with (
        tempfile.TemporaryDirectory(prefix="sf-bench-") as name,
        services_running(Path(name) / "services", "--not-durable") as services,
    ):
        folder = Path(name)
        database_migrate(services.urls, artifacts=folder / "artifacts")
        async with gateway_world_made(services.urls["DATABASE_URL"], services.urls, folder) as world:
            job: dict[str, Any] = {
                "rollout": {"group_size": GROUP_SIZE, "groups_per_batch": num_groups},
                "num_tasks": num_groups,
            }
            await world.start_engines(lambda prompt: "yes<|im_end|>", num_engines=0, **job)
            yield world


def _rows(name: str, clean: Trained, other: Trained, *, is_goal: bool) -> list[Row]:
    same = sum(other.get(key) == value for key, value in clean.items()) / len(clean)
    lengths, others = ([turns for _, turns in each.values()] for each in (clean, other))
    values = {
        SAME: (same, Goal(1.0)),
        KS_P: (ks_p(lengths, others), Goal(0.05)),
        LENGTH: (float(np.mean(others) / np.mean(lengths)), None),
    }
    return [
        Row(f"{name}: {metric}", "", _once(value), "no failures", _once(1.0), goal if is_goal else None)
        for metric, (value, goal) in values.items()
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
