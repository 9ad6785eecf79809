"""Recording and matching of trajectories: episodes of 20 turns and 8,000 tokens.

Recording compares the gateway's writer, with 64 episodes at once, with one INSERT statement and one
commit per turn, on one connection and in the same tables; PostgreSQL commits to disk. Matching
compares planning the 20th turn of a conversation by its tree, as the gateway does, with rendering
and tokenising the whole conversation.
"""

import asyncio
import datetime
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import psycopg
from psycopg import AsyncConnection

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind
from seamlessflow.data_plane.store.turns.node_rows import (
    COLUMNS,
    NodeFacts,
    NodeRow,
    SessionKey,
    node_values,
    prompts_statement,
)
from seamlessflow.data_plane.store.turns.turn_store import TurnWriter
from tests.benchmarks import matching
from tests.benchmarks.measuring import interleaved
from tests.benchmarks.report import Goal, Row
from tests.fixtures.gateway_world import GatewayWorld, database_migrate
from tests.fixtures.services import services_running

BASELINE = "one INSERT and one commit per turn"
# ROADMAP: at least 1M tokens/s recorded durably.
RECORDING_GOAL = Goal(1e6)
NUM_EPISODES = 64
GROUP_SIZE = 8
NUM_TURNS = 20
NUM_PROMPT_TOKENS = 128
NUM_SAMPLED_TOKENS = 272
TOKENS_PER_EPISODE = NUM_TURNS * (NUM_PROMPT_TOKENS + NUM_SAMPLED_TOKENS)
CHARACTERS_PER_TOKEN = 4
VOCABULARY = 151_000
MONTH = datetime.date(2026, 1, 1)
_INSERT = f"INSERT INTO trajectory_node ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"

Episode = Sequence[Sequence[NodeRow]]


class Recording:
    """The sides of the comparison; each sample records new sessions of an existing job."""

    def __init__(self, world: GatewayWorld) -> None:
        self._world = world
        self._chance = np.random.default_rng(0)

    async def by_writer(self) -> dict[str, float]:
        episodes = self._episodes()
        writer = TurnWriter(self._world.database_url)
        running = asyncio.create_task(writer.run())
        started_s = time.perf_counter()
        await asyncio.gather(*(_recorded(writer, episode) for episode in episodes))
        sample = _rates(time.perf_counter() - started_s)
        running.cancel()
        with suppress(asyncio.CancelledError):  # ours
            await running
        self._check_recorded(episodes)
        return sample

    async def by_inserts(self) -> dict[str, float]:
        episodes = self._episodes()
        known: set[UUID] = set()
        async with await AsyncConnection.connect(self._world.database_url, autocommit=True) as connection:
            started_s = time.perf_counter()
            for turn in (episode[number] for number in range(NUM_TURNS) for episode in episodes):
                async with connection.transaction(), connection.cursor() as cursor:
                    if statement := prompts_statement(turn, known):
                        await cursor.execute(statement)
                    await cursor.executemany(_INSERT, [node_values(row) for row in turn])
            sample = _rates(time.perf_counter() - started_s)
        self._check_recorded(episodes)
        return sample

    def _episodes(self) -> list[Episode]:
        groups = [self._new_group() for _ in range(NUM_EPISODES // GROUP_SIZE)]
        return [self._episode(key, prompt) for keys, prompt in groups for key in keys]

    def _new_group(self) -> tuple[list[SessionKey], bytes]:
        """Return the sessions of a new group as rows, and the prompt that all of them begin
        with."""
        world, group = self._world, uuid4()
        world.insert(
            "trajectory_group", id=group, project_id=world.project_id, job_id=world.job_id,
            index=int(self._chance.integers(1 << 60)), external_key="", task={}, size=GROUP_SIZE, state="open",
            reason="", num_rewarded=0, created_at=MONTH,
        )  # fmt: skip
        keys = [SessionKey(uuid4(), MONTH, world.project_id, world.job_id) for _ in range(GROUP_SIZE)]
        for slot, key in enumerate(keys):
            world.insert(
                "trajectory_session", id=key.session_id, project_id=world.project_id, job_id=world.job_id,
                group_id=group, month=MONTH, slot=slot, attempt=1, state="open", reason="",
                is_timeout=False, is_late=False, metrics={}, num_turns=0, num_sampled_tokens=0, opened_at=MONTH,
                key_digest=hashlib.sha256(key.session_id.bytes).digest(),
            )  # fmt: skip
        return keys, self._token_ids(NUM_PROMPT_TOKENS)

    def _episode(self, key: SessionKey, prompt: bytes) -> Episode:
        return [self._turn(key, number, prompt) for number in range(NUM_TURNS)]

    def _turn(self, key: SessionKey, number: int, root: bytes) -> list[NodeRow]:
        """Return two nodes: what the agent said and what the policy answered, with a logprob for
        each token."""
        asked = {"role": "user", "content": "q" * NUM_PROMPT_TOKENS * CHARACTERS_PER_TOKEN}
        said = {"role": "assistant", "content": "a" * NUM_SAMPLED_TOKENS * CHARACTERS_PER_TOKEN}
        turn_id, index, tokens = uuid4(), 2 * number, (number + 1) * (NUM_PROMPT_TOKENS + NUM_SAMPLED_TOKENS)
        prompt = Node(
            index,
            index - 1 if number else None,
            NodeKind.PROMPT if number else NodeKind.ROOT,
            self._token_ids(NUM_PROMPT_TOKENS) if number else root,
            message_digests([asked]),
            tokens - NUM_SAMPLED_TOKENS,
            context=b"" if number else bytes(16),
        )
        answer = Node(
            index + 1,
            index,
            NodeKind.SAMPLED,
            self._token_ids(NUM_SAMPLED_TOKENS),
            message_digests([said]),
            tokens,
            logprobs=self._chance.normal(-1, 1, NUM_SAMPLED_TOKENS).astype("<f4").tobytes(),
            spans=(0, number),
        )
        facts = NodeFacts(
            messages=[said], turn_id=turn_id, finish_reason="stop", request_digest=turn_id.bytes * 2
        )
        return [
            NodeRow(key, prompt, NodeFacts(messages=[asked], turn_id=turn_id, drift=Drift.CLEAN)),
            NodeRow(key, answer, facts),
        ]

    def _token_ids(self, num_tokens: int) -> bytes:
        return self._chance.integers(0, VOCABULARY, num_tokens).astype("<i4").tobytes()

    def _check_recorded(self, episodes: Sequence[Episode]) -> None:
        """Check that another connection sees every token; then make the tables as small as
        before."""
        sessions = [episode[0][0].key.session_id for episode in episodes]
        with psycopg.connect(self._world.database_url, autocommit=True) as connection:
            query = "SELECT sum(num_tokens) FROM trajectory_node WHERE session_id = ANY(%s)"
            assert connection.execute(query, [sessions]).fetchone() == (NUM_EPISODES * TOKENS_PER_EPISODE,)
            connection.execute("TRUNCATE trajectory_node, trajectory_prompt")
            connection.execute("CHECKPOINT")


async def measure() -> list[Row]:
    async with _world() as world:
        recording = Recording(world)
        samples = await interleaved({"writer": recording.by_writer, "inserts": recording.by_inserts})
        matched = await matching.measure(
            world.folder / "model", num_turns=NUM_TURNS, num_tokens=TOKENS_PER_EPISODE
        )
    writer, inserts = samples["writer"], samples["inserts"]
    recorded = [
        Row(
            f"recording durably, {NUM_EPISODES} episodes at once: {what}",
            f"{what}/s",
            writer[key],
            BASELINE,
            inserts[key],
            goal,
        )
        for what, key, goal in (("tokens", "tokens_per_s", RECORDING_GOAL), ("turns", "turns_per_s", None))
    ]
    return [*recorded, *matched]


async def _recorded(writer: TurnWriter, episode: Episode) -> None:
    """Record as an agent does: the next turn begins when this one is acknowledged."""
    for turn in episode:
        await writer.commit(turn)


def _rates(elapsed_s: float) -> dict[str, float]:
    return {
        "tokens_per_s": NUM_EPISODES * TOKENS_PER_EPISODE / elapsed_s,
        "turns_per_s": NUM_EPISODES * NUM_TURNS / elapsed_s,
    }


@asynccontextmanager
async def _world() -> AsyncIterator[GatewayWorld]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with services_running(home / "services") as services:
            database_migrate(services.urls, artifacts=home / "artifacts")
            world = GatewayWorld(services.urls["DATABASE_URL"], home)
            world.make_job()
            assert world.sql("SHOW fsync") == world.sql("SHOW synchronous_commit") == [("on",)]
            yield world
