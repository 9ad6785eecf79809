"""One suite for the stores of turns, in memory and in PostgreSQL."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

import numpy as np
import pytest
from psycopg import AsyncConnection

from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.guidance.guide import GuideKind
from seamlessflow.core.guidance.masks import GuidedBy
from seamlessflow.core.guidance.record import guide_record
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind
from seamlessflow.data_plane.store.api_keys import key_digest
from seamlessflow.data_plane.store.connection import Connection, pool_make
from seamlessflow.data_plane.store.groups.group_rows import (
    NewGroup,
    OpenGroup,
    Slot,
    group_insert,
    sessions_insert,
    slots_new,
)
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, NodeRow, SessionKey
from seamlessflow.data_plane.store.turns.protocol import TurnRefused, TurnStore
from seamlessflow.data_plane.store.turns.sessions import (
    EarlierAttempt,
    SessionOutcome,
    SessionRow,
    sessions_end,
)
from seamlessflow.data_plane.store.turns.turn_store import PostgresTurns, TurnWriter
from tests.fakes.memory_turns import MemoryTurns
from tests.fixtures.gateway_world import GatewayWorld

MONTH = datetime.date(2026, 1, 1)
EPOCH = 7
OPENED_AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ASKED = {"role": "user", "content": "12+34?"}
SAID = {"role": "assistant", "content": "46"}
GUIDED = guide_record(GuideKind.REGEX, "[0-9é]+", GuidedBy("llguidance 1.7.6", "ab" * 32, (2, 7)), first=1)


class Around(Protocol):
    """A store, and what the control plane and the group feed write to it."""

    job_id: UUID

    @property
    def store(self) -> TurnStore: ...

    async def open_session(self) -> SessionKey: ...

    async def move(self, key: SessionKey, epoch: int) -> None: ...

    async def end(self, key: SessionKey) -> None: ...

    async def failed(self, key: SessionKey, failure: FailureKind, num_turns: int) -> SessionKey:
        """Let a session fail after so many turns, and open the next attempt of its slot."""
        ...


class AroundMemory:
    def __init__(self, world: GatewayWorld) -> None:
        self.job_id, self._world = world.job_id, world
        self.store = MemoryTurns()
        self.store.jobs[world.job_id] = JobRow(
            world.job_id, world.project_id, "tiny", "running", {}, "", "", ""
        )

    async def open_session(self) -> SessionKey:
        key = SessionKey(uuid4(), MONTH, self._world.project_id, self.job_id, EPOCH)
        self.store.sessions[key.session_id] = SessionRow(
            key.session_id,
            key.project_id,
            key.job_id,
            uuid4(),
            MONTH,
            SessionState.OPEN,
            key_digest("a"),
            None,
            gateway_epoch=EPOCH,
        )
        return key

    async def move(self, key: SessionKey, epoch: int) -> None:
        row = self.store.sessions[key.session_id]
        self.store.sessions[key.session_id] = replace(row, gateway_epoch=epoch)

    async def end(self, key: SessionKey) -> None:
        row = self.store.sessions[key.session_id]
        self.store.sessions[key.session_id] = replace(row, state=SessionState.CLOSED)

    async def failed(self, key: SessionKey, failure: FailureKind, num_turns: int) -> SessionKey:
        row = self.store.sessions[key.session_id]
        self.store.sessions[key.session_id] = replace(row, state=SessionState.FAILED)
        new = await self.open_session()
        earlier = EarlierAttempt(key.session_id, MONTH, failure, num_turns)
        self.store.attempts[new.session_id] = [*self.store.attempts.get(key.session_id, []), earlier]
        return new


class AroundPostgres:
    def __init__(self, connection: Connection, world: GatewayWorld, store: PostgresTurns) -> None:
        self.job_id, self.store = world.job_id, store
        self._connection, self._world = connection, world
        self._num_groups = 0
        self._opened: dict[UUID, tuple[OpenGroup, int]] = {}  # each session's group and attempt

    async def open_session(self) -> SessionKey:
        project_id, job_id = self._world.project_id, self._world.job_id
        group = await group_insert(
            self._connection, NewGroup(project_id, job_id, self._num_groups, None, {}, 1)
        )
        self._num_groups += 1
        return await self._open(group, slots_new(group)[0])

    async def _open(self, group: OpenGroup, slot: Slot) -> SessionKey:
        project_id, job_id = self._world.project_id, self._world.job_id
        (leased,) = await sessions_insert(
            self._connection,
            group,
            [slot],
            project_id=project_id,
            job_id=job_id,
            now=OPENED_AT,
            epoch=EPOCH,
        )
        self._opened[leased.session_id] = group, leased.attempt
        return SessionKey(leased.session_id, MONTH, project_id, job_id, EPOCH)

    async def failed(self, key: SessionKey, failure: FailureKind, num_turns: int) -> SessionKey:
        await self._connection.execute(
            "UPDATE trajectory_session SET num_turns = %s WHERE id = %s", [num_turns, key.session_id]
        )
        await sessions_end(self._connection, {key.session_id: SessionOutcome(None, failure=failure)})
        group, attempt = self._opened[key.session_id]
        return await self._open(group, Slot(0, attempt, SessionState.FAILED))

    async def move(self, key: SessionKey, epoch: int) -> None:
        await self._connection.execute(
            "UPDATE trajectory_session SET gateway_epoch = %s WHERE id = %s", [epoch, key.session_id]
        )

    async def end(self, key: SessionKey) -> None:
        await sessions_end(self._connection, {key.session_id: SessionOutcome(1.0)})


@pytest.fixture(params=["memory", "postgres"])
async def around(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Around]:
    if request.param == "memory":
        yield AroundMemory(GatewayWorld("", tmp_path, project_id=uuid4(), job_id=uuid4()))
        return
    url = request.getfixturevalue("migrated_database_url")
    world = GatewayWorld(url, tmp_path, project_id=uuid4(), job_id=uuid4())
    world.make_job()
    writer = TurnWriter(url)
    pool = pool_make(url)
    await pool.open()
    running = asyncio.create_task(writer.run())
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        yield AroundPostgres(connection, world, PostgresTurns(pool, writer))
    running.cancel()
    await asyncio.wait([running])
    await pool.close()


def turn(key: SessionKey, *, first: int = 0) -> list[NodeRow]:
    """A prompt and its answer, as nodes `first` and `first + 1`."""
    ids = np.arange(5, dtype="<i4").tobytes()
    logprobs = np.linspace(-1, 0, 5, dtype="<f4").tobytes()
    turn_id, parent = uuid4(), first - 1 if first else None
    kind = NodeKind.PROMPT if first else NodeKind.ROOT
    asked = Node(first, parent, kind, ids, message_digests([ASKED]), 5 * (first + 1), context=b"\1" * 16)
    said = Node(
        first + 1, first, NodeKind.SAMPLED, ids, message_digests([SAID]), 5 * (first + 2), logprobs=logprobs,
        spans=(0, 3, 2, 4), loss_mask=b"\x50", guided=GUIDED,
    )  # fmt: skip
    return [
        NodeRow(key, asked, NodeFacts(messages=[ASKED], turn_id=turn_id, drift=Drift.CLEAN)),
        NodeRow(key, said, NodeFacts([SAID], turn_id, finish_reason="stop", request_digest=b"\2" * 32)),
    ]


async def test_what_is_not_there_is_none(around: Around) -> None:
    assert await around.store.job(uuid4()) is None
    assert await around.store.session(uuid4()) is None


async def test_a_job_comes_back_with_its_state(around: Around) -> None:
    job = await around.store.job(around.job_id)

    assert job is not None
    assert (job.job_id, job.name, job.state) == (around.job_id, "tiny", "running")


async def test_a_session_comes_back_with_its_turns_as_they_were_committed(around: Around) -> None:
    key = await around.open_session()
    first, second = turn(key), turn(key, first=2)
    await around.store.commit(first)
    await around.store.commit(second)

    stored = await around.store.session(key.session_id)

    assert stored is not None
    assert (stored.key, stored.row.state) == (key, SessionState.OPEN)
    assert [row.node for row in stored.nodes] == [row.node for row in (*first, *second)]
    assert [row.facts.turn_id for row in stored.nodes] == [row.facts.turn_id for row in (*first, *second)]
    assert stored.nodes[3].facts.request_digest == b"\2" * 32
    assert await around.store.nodes(key) == list(stored.nodes)


async def test_a_session_without_turns_has_no_nodes(around: Around) -> None:
    key = await around.open_session()

    stored = await around.store.session(key.session_id)

    assert stored is not None
    assert list(stored.nodes) == await around.store.nodes(key) == []


async def test_a_session_finds_the_attempt_before_it_that_got_farthest(around: Around) -> None:
    first = await around.open_session()
    await around.store.commit(turn(first))
    second = await around.failed(first, FailureKind.MACHINE, 3)
    third = await around.failed(second, FailureKind.SETUP, 0)

    earlier = await around.store.earlier(third)

    assert await around.store.earlier(first) is None
    assert earlier is not None
    assert earlier.session_id == first.session_id
    assert list(earlier.nodes) == await around.store.nodes(first)
    fourth = await around.failed(third, FailureKind.AGENT, 1)
    assert await around.store.earlier(fourth) is None


async def test_a_turn_that_contradicts_what_is_stored_is_refused_whole(around: Around) -> None:
    key = await around.open_session()
    stored = turn(key)
    await around.store.commit(stored)
    other = turn(key, first=2)
    clashing = replace(other[0], node=stored[1].node)

    with pytest.raises(TurnRefused):
        await around.store.commit([other[1], clashing])

    assert [row.node.index for row in await around.store.nodes(key)] == [0, 1]
    await around.store.commit(other)
    assert [row.node.index for row in await around.store.nodes(key)] == [0, 1, 2, 3]


async def test_a_turn_under_an_epoch_that_lost_the_session_is_refused(around: Around) -> None:
    key, other = await around.open_session(), await around.open_session()
    await around.store.commit(turn(key))
    await around.move(key, EPOCH + 1)

    late, beside = await asyncio.gather(
        around.store.commit(turn(key, first=2)), around.store.commit(turn(other)), return_exceptions=True
    )

    assert isinstance(late, TurnRefused)
    assert beside is None
    assert [row.node.index for row in await around.store.nodes(key)] == [0, 1]
    stored = await around.store.session(key.session_id)
    assert stored is not None
    await around.store.commit(turn(stored.key, first=2))
    assert [row.node.index for row in await around.store.nodes(key)] == [0, 1, 2, 3]


async def test_a_turn_of_a_session_that_is_over_is_refused(around: Around) -> None:
    key = await around.open_session()
    await around.end(key)

    with pytest.raises(TurnRefused):
        await around.store.commit(turn(key))

    assert await around.store.nodes(key) == []


async def test_turns_of_many_sessions_that_end_together_are_all_stored(around: Around) -> None:
    keys = [await around.open_session() for _ in range(20)]

    await asyncio.gather(*(around.store.commit(turn(key)) for key in keys))

    for key in keys:
        assert [row.node.index for row in await around.store.nodes(key)] == [0, 1]
