"""One suite for the stores of epochs, in memory and in PostgreSQL."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
import pytest
from psycopg import AsyncConnection

from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.epochs import Epoch, PostgresEpochs, StageChange, StageRequest
from seamlessflow.data_plane.store.groups.group_rows import (
    NewGroup,
    group_insert,
    sessions_insert,
    slots_new,
)
from seamlessflow.data_plane.store.groups.moves import group_move
from seamlessflow.data_plane.store.protocols import EpochStore
from seamlessflow.data_plane.store.turns.sessions import SessionOutcome, sessions_end
from tests.fakes.memory_epochs import FinalizedGroup, MemoryEpochs, MetricPoint
from tests.fixtures.gateway_world import GatewayWorld

LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
REWARD = "train/reward_mean"


class Around(Protocol):
    """A store, and what people, trainers and runners write to it."""

    @property
    def store(self) -> EpochStore: ...

    async def request(self, number: int, stage: int) -> None: ...
    async def publish(self, num_updates: int, values: list[float]) -> None: ...
    async def finalize(self, index: int, task_index: int, rewards: list[float]) -> None: ...


class AroundMemory:
    def __init__(self) -> None:
        self.store = MemoryEpochs(lambda: datetime.datetime.now(datetime.UTC))

    async def request(self, number: int, stage: int) -> None:
        self.store.request = StageRequest(number, stage)

    async def publish(self, num_updates: int, values: list[float]) -> None:
        self.store.num_updates = num_updates
        now = datetime.datetime.now(datetime.UTC)
        self.store.points += [MetricPoint(REWARD, step, value, now) for step, value in enumerate(values)]

    async def finalize(self, index: int, task_index: int, rewards: list[float]) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.store.groups.append(FinalizedGroup(task_index, index, now, min(rewards)))


class AroundPostgres:
    def __init__(self, connection: Connection, world: GatewayWorld) -> None:
        self._connection, self._world = connection, world
        self.store = PostgresEpochs(connection, project_id=world.project_id, job_id=world.job_id)

    async def request(self, number: int, stage: int) -> None:
        await self._connection.execute(
            "UPDATE jobs_job SET stage_request = %s, stage_requested = %s", [number, stage]
        )

    async def publish(self, num_updates: int, values: list[float]) -> None:
        await self._connection.execute("UPDATE jobs_job SET published_batch = %s", [num_updates])
        for step, value in enumerate(values):
            await self._connection.execute(
                "INSERT INTO telemetry_metricpoint (project_id, job_id, name, step, value, at) "
                "VALUES (%s, %s, %s, %s, %s, now())",
                [self._world.project_id, self._world.job_id, REWARD, step, value],
            )

    async def finalize(self, index: int, task_index: int, rewards: list[float]) -> None:
        project_id, job_id = self._world.project_id, self._world.job_id
        group = await group_insert(
            self._connection, NewGroup(project_id, job_id, index, task_index, {}, len(rewards))
        )
        now = datetime.datetime.now(datetime.UTC)
        leased = await sessions_insert(
            self._connection, group, slots_new(group), project_id=project_id, job_id=job_id, now=now, epoch=1
        )
        outcomes = {
            one.session_id: SessionOutcome(reward) for one, reward in zip(leased, rewards, strict=True)
        }
        await sessions_end(self._connection, outcomes)
        await group_move(self._connection, group.group_id, GroupState.OPEN, GroupState.READY, reason="")
        await self._connection.execute("UPDATE trajectory_group SET num_rewarded = %s", [len(rewards)])


@pytest.fixture(params=["memory", "postgres"])
async def around(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Around]:
    if request.param == "memory":
        yield AroundMemory()
        return
    url = request.getfixturevalue("migrated_database_url")
    world = GatewayWorld(url, tmp_path, project_id=uuid4(), job_id=uuid4())
    world.make_job()
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "SET session_replication_role = replica"
        )  # rows without the rows that own them
        yield AroundPostgres(connection, world)


def epoch(number: int, *, stage: int = 0) -> Epoch:
    return Epoch(number, stage, 0, 3 * number, np.array([2, 0, 1], dtype=np.int32))


async def test_the_newest_epoch_comes_back_as_it_was_stored(around: Around) -> None:
    assert await around.store.newest() is None
    await around.store.insert(epoch(0), reason="first")
    await around.store.insert(epoch(1), reason="next")
    newest = await around.store.newest()
    assert newest is not None
    assert (newest.number, newest.first_index, newest.end_index) == (1, 3, 6)
    assert newest.order.tolist() == [2, 0, 1]


async def test_a_stay_in_a_stage_begins_with_its_first_epoch_since_another_stage(around: Around) -> None:
    assert await around.store.stage_began_at(0) is None
    await around.store.insert(epoch(0), reason="first")
    first = await around.store.stage_began_at(0)
    await around.store.insert(epoch(1), reason="next")
    assert await around.store.stage_began_at(0) == first
    await around.store.insert(epoch(2, stage=1), reason="on", change=StageChange("easy", "hard", "switched"))
    assert await around.store.stage_began_at(0) is None
    await around.store.insert(epoch(3), reason="back")
    again = await around.store.stage_began_at(0)
    assert first is not None
    assert again is not None
    assert again > first


async def test_requests_and_updates_are_told_as_they_stand(around: Around) -> None:
    assert await around.store.stage_request() == StageRequest(0, None)
    await around.request(1, 2)
    await around.publish(7, [])
    assert await around.store.stage_request() == StageRequest(1, 2)
    assert await around.store.num_updates_published() == 7


async def test_metrics_come_newest_first_and_only_since_the_moment(around: Around) -> None:
    await around.publish(3, [0.1, 0.2, 0.3])
    assert await around.store.metric_recent(REWARD, window=2, since=LONG_AGO) == [0.3, 0.2]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    assert await around.store.metric_recent(REWARD, window=2, since=later) == []


async def test_the_lowest_reward_of_a_task_is_that_of_its_newest_group(around: Around) -> None:
    await around.finalize(0, 5, [1.0, 0.0])
    await around.finalize(1, 5, [1.0, 0.5])
    await around.finalize(2, 6, [0.25, 1.0])
    assert await around.store.lowest_rewards(since=LONG_AGO) == {5: 0.5, 6: 0.25}
    assert await around.store.lowest_rewards(since=None) == {}
