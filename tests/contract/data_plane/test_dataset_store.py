"""One suite for the stores of offline datasets, in memory and in PostgreSQL."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

import numpy as np
import pytest
from psycopg import AsyncConnection

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow.data_plane.store.batches.datasets import DatasetGroup, PostgresDatasets
from seamlessflow.data_plane.store.connection import Connection, pool_make
from seamlessflow.data_plane.store.groups.group_rows import (
    NewGroup,
    group_insert,
    sessions_insert,
    slots_new,
)
from seamlessflow.data_plane.store.protocols import DatasetStore
from seamlessflow.data_plane.store.turns.flush import rows_store
from seamlessflow.data_plane.store.turns.node_rows import (
    NodeFacts,
    NodeRow,
    SessionKey,
)
from seamlessflow.data_plane.store.turns.sessions import SessionOutcome, sessions_end
from tests.fakes.memory_datasets import MemoryDatasets
from tests.fixtures.gateway_world import GatewayWorld

MONTH = datetime.date(2026, 1, 1)
OPENED_AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
PROMPT = np.arange(3, dtype="<i4").tobytes()


def nodes(number: int) -> list[Node]:
    """A prompt, and an answer that identifies the session."""
    answer = np.array([100 + number], dtype="<i4").tobytes()
    logprob = np.array([-0.5], dtype="<f4").tobytes()
    return [
        Node(0, None, NodeKind.ROOT, PROMPT, (), 3),
        Node(1, 0, NodeKind.SAMPLED, answer, (), 4, logprobs=logprob, spans=(0, 2)),
    ]


class Around(Protocol):
    """A store, and what the recording job and the submission of the training job write to it."""

    job_id: UUID

    @property
    def store(self) -> DatasetStore: ...

    async def record(self, position: int, rewards: Sequence[float], chosen: Sequence[int]) -> DatasetGroup:
        """Add a recorded group at a position of the dataset, with one session per reward; `chosen` gives slots."""
        ...

    async def delete(self, group: DatasetGroup) -> None: ...


class AroundMemory:
    def __init__(self) -> None:
        self.job_id, self.store = uuid4(), MemoryDatasets()
        self._num_sessions = 0

    async def record(self, position: int, rewards: Sequence[float], chosen: Sequence[int]) -> DatasetGroup:
        ids = [uuid4() for _ in rewards]
        for session_id, reward in zip(ids, rewards, strict=True):
            recorded = nodes(self._num_sessions)
            self.store.outcomes[session_id] = FinishedSession(reward, recorded, num_sampled_tokens=1)
            self._num_sessions += 1
        group = DatasetGroup(uuid4(), tuple(ids[slot] for slot in chosen))
        self.store.positions[self.job_id, position] = group
        return group

    async def delete(self, group: DatasetGroup) -> None:
        for key in [key for key, one in self.store.positions.items() if one == group]:
            del self.store.positions[key]


class AroundPostgres:
    def __init__(self, connection: Connection, world: GatewayWorld, store: PostgresDatasets) -> None:
        self.job_id, self.store = world.job_id, store
        self._connection, self._world, self._num_sessions = connection, world, 0

    async def record(self, position: int, rewards: Sequence[float], chosen: Sequence[int]) -> DatasetGroup:
        project_id, job_id = self._world.project_id, self.job_id
        new = NewGroup(project_id, job_id, position, None, {}, len(rewards))
        group = await group_insert(self._connection, new)
        leased = await sessions_insert(
            self._connection,
            group,
            slots_new(group),
            project_id=project_id,
            job_id=job_id,
            now=OPENED_AT,
            epoch=1,
        )
        for one in leased:
            await self._write(SessionKey(one.session_id, MONTH, project_id, job_id))
        outcomes = {
            one.session_id: SessionOutcome(reward) for one, reward in zip(leased, rewards, strict=True)
        }
        await sessions_end(self._connection, outcomes)
        made = DatasetGroup(group.group_id, tuple(leased[slot].session_id for slot in chosen))
        await self._connection.execute(
            """INSERT INTO trajectory_dataset (project_id, job_id, position, group_id, session_ids)
               VALUES (%s, %s, %s, %s, %s)""",
            [project_id, job_id, position, made.group_id, list(made.session_ids)],
        )
        return made

    async def _write(self, key: SessionKey) -> None:
        turn_id = uuid4()
        rows = [NodeRow(key, node, NodeFacts([], turn_id)) for node in nodes(self._num_sessions)]
        self._num_sessions += 1
        await rows_store(self._connection, rows, set())

    async def delete(self, group: DatasetGroup) -> None:
        await self._connection.execute("DELETE FROM trajectory_dataset WHERE group_id = %s", [group.group_id])


@pytest.fixture(params=["memory", "postgres"])
async def around(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Around]:
    if request.param == "memory":
        yield AroundMemory()
        return
    url = request.getfixturevalue("migrated_database_url")
    world = GatewayWorld(url, tmp_path, project_id=uuid4(), job_id=uuid4())
    world.make_job()
    pool = pool_make(url)
    await pool.open()
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        yield AroundPostgres(connection, world, PostgresDatasets(pool))
    await asyncio.shield(pool.close())


def answers(sessions: list[FinishedSession]) -> list[int]:
    return [int(np.frombuffer(one.nodes[1].token_ids, dtype="<i4")[0]) for one in sessions]


async def test_groups_come_in_the_order_asked_for(around: Around) -> None:
    groups = [await around.record(position, [1.0], [0]) for position in range(3)]

    assert await around.store.groups(around.job_id, [2, 0, 1]) == [groups[2], groups[0], groups[1]]
    assert await around.store.groups(uuid4(), [0]) == []


async def test_groups_whose_source_was_deleted_are_left_out(around: Around) -> None:
    first, second = [await around.record(position, [1.0], [0]) for position in range(2)]
    await around.delete(first)

    assert await around.store.groups(around.job_id, [0, 1, 7]) == [second]


async def test_only_chosen_sessions_come_back_with_what_they_sampled(around: Around) -> None:
    first = await around.record(0, [0.0, 1.0, 0.5], [1, 2])
    second = await around.record(1, [1.0], [0])

    found = await around.store.sessions([second, first])

    assert [answers(sessions) for sessions in found] == [[103], [101, 102]]
    assert [[one.reward for one in sessions] for sessions in found] == [[1.0], [1.0, 0.5]]
    assert found[0][0].nodes[1].spans == (0, 2)


async def test_no_groups_have_no_sessions(around: Around) -> None:
    assert await around.store.sessions([]) == []
