"""The gateway's SQL on the tables that Django migrates: every node is written once and read back unchanged."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest
from psycopg import AsyncConnection
from psycopg.errors import IntegrityError

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import OpenGroup, sessions_insert, slots_new
from seamlessflow.data_plane.store.turns import node_rows, turn_store
from seamlessflow.data_plane.store.turns.flush import rows_store
from seamlessflow.data_plane.store.turns.node_rows import NodeFacts, NodeRow, SessionKey, nodes_read
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.store.turns.turn_store import PendingTurn, TurnWriter

MONTH = datetime.date(2026, 1, 1)
ASKED = {"role": "user", "content": "12+34?"}
SAID = {"role": "assistant", "content": "46"}


@pytest.fixture
async def connection(migrated_database_url: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(migrated_database_url, autocommit=True) as opened:
        await opened.execute("SET session_replication_role = replica")  # rows without their jobs and projects
        yield opened


def turn(key: SessionKey) -> list[NodeRow]:
    """A root and its answer."""
    ids = np.arange(5, dtype="<i4").tobytes()
    logprobs = np.linspace(-1, 0, 5, dtype="<f4").tobytes()
    turn_id = uuid4()
    root = Node(0, None, NodeKind.ROOT, ids, message_digests([ASKED]), 5, context=b"\1" * 16)
    answer = Node(
        1, 0, NodeKind.SAMPLED, ids, message_digests([SAID]), 10, logprobs=logprobs, spans=(0, 3, 2, 4)
    )
    asked = NodeFacts(messages=[ASKED], turn_id=turn_id, drift=Drift.CLEAN)
    said = NodeFacts(messages=[SAID], turn_id=turn_id, finish_reason="stop", request_digest=b"\2" * 32)
    return [NodeRow(key, root, asked), NodeRow(key, answer, said)]


async def open_session(connection: Connection) -> SessionKey:
    key = SessionKey(uuid4(), MONTH, uuid4(), uuid4(), epoch=1)
    group = OpenGroup(uuid4(), 0, {}, 1)
    (leased,) = await sessions_insert(
        connection,
        group,
        slots_new(group),
        project_id=key.project_id,
        job_id=key.job_id,
        now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        epoch=key.epoch,
    )
    return replace(key, session_id=leased.session_id)


async def test_nodes_come_back_as_they_were_written(connection: Connection) -> None:
    key = SessionKey(uuid4(), MONTH, uuid4(), uuid4())
    rows = turn(key)
    await rows_store(connection, rows, set())
    (read,) = (await nodes_read(connection, [(MONTH, key.session_id)])).values()
    assert [row.node for row in read] == [row.node for row in rows]
    assert read[1].facts.request_digest == b"\2" * 32
    cursor = await connection.execute(
        "SELECT min_version, max_version, flags FROM trajectory_node ORDER BY node_index"
    )
    assert await cursor.fetchall() == [(None, None, {"context": "01" * 16}), (3, 4, {})]


async def test_a_flush_in_doubt_writes_what_is_missing_and_nothing_twice(
    connection: Connection, migrated_database_url: str
) -> None:
    first, second = [turn(await open_session(connection)) for _ in range(2)]
    await rows_store(connection, first, set())
    pending = [turn_store.pending_turn(rows) for rows in (first, second)]
    store = TurnWriter(migrated_database_url)
    await store.transact(connection, pending, is_in_doubt=True)
    cursor = await connection.execute("SELECT count(*) FROM trajectory_node")
    assert await cursor.fetchone() == (4,)


async def test_a_node_that_another_gateway_wrote_refuses_the_turn_and_no_other(
    connection: Connection, migrated_database_url: str
) -> None:
    rows = turn(await open_session(connection))
    await rows_store(connection, rows, set())
    answer = replace(rows[1], facts=replace(rows[1].facts, turn_id=uuid4()))
    store = TurnWriter(migrated_database_url)
    running = asyncio.create_task(store.run())
    with pytest.raises(TurnRefused):
        await store.commit([answer])
    await store.commit([replace(answer, node=replace(answer.node, index=2))])
    running.cancel()
    await asyncio.wait([running])


async def test_rows_larger_than_what_is_sent_at_once_come_back_as_they_were_written(
    connection: Connection,
) -> None:
    key = SessionKey(uuid4(), MONTH, uuid4(), uuid4())
    root, answer = turn(key)
    message = {"role": "assistant", "content": "46 " * (128 << 10)}
    long = replace(answer, facts=replace(answer.facts, messages=[message]))
    await rows_store(connection, [root, long], set())
    (read,) = (await nodes_read(connection, [(MONTH, key.session_id)])).values()
    assert read[1].facts.messages == [message]


async def test_a_commit_that_fails_raises_and_stores_nothing(migrated_database_url: str) -> None:
    rows = turn(SessionKey(uuid4(), MONTH, uuid4(), uuid4()))  # of no project: checked by the commit
    async with await AsyncConnection.connect(migrated_database_url, autocommit=True) as connection:
        with pytest.raises(IntegrityError):
            await rows_store(connection, rows, set())
        cursor = await connection.execute("SELECT count(*) FROM trajectory_prompt")
        assert await cursor.fetchone() == (0,)


async def test_turns_that_come_after_a_busy_flush_are_gathered(
    connection: Connection, migrated_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_store, "GATHER_S", 60.0)
    flushes: list[int] = []

    class Slow(TurnWriter):
        async def transact(
            self, connection: Connection, turns: Sequence[PendingTurn], *, is_in_doubt: bool
        ) -> None:
            flushes.append(len(turns))
            await asyncio.sleep(0.2)

    store = Slow(migrated_database_url)
    first, *others = [store.commit(turn(await open_session(connection))) for _ in range(3)]
    running = asyncio.create_task(store.run())
    await asyncio.gather(first, *others)
    late = [store.commit(turn(await open_session(connection)))]
    await asyncio.sleep(0.05)
    late.append(store.commit(turn(await open_session(connection))))
    await asyncio.gather(*late)
    assert flushes == [3, 2]
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("limit", ["PACE_S", "LONG_PACE_S"])
async def test_flushes_keep_a_distance_only_while_many_turns_are_at_work_or_wait_for_an_engine(
    migrated_database_url: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(turn_store, "PACE_S", 0.0)
    monkeypatch.setattr(turn_store, limit, 60.0)
    num = turn_store.MANY - 1

    class Quick(TurnWriter):
        async def transact(
            self, connection: Connection, turns: Sequence[PendingTurn], *, is_in_doubt: bool
        ) -> None:
            pass

    async def commit() -> None:
        await store.commit(turn(SessionKey(uuid4(), MONTH, uuid4(), uuid4())))

    num_waiting = (lambda: num) if limit == "LONG_PACE_S" else (lambda: 0)
    store = Quick(migrated_database_url, lambda: num, num_waiting)
    running = asyncio.create_task(store.run())
    for _ in range(3):  # one by one: none of them waits
        await commit()
    num += 1
    await commit()
    late = asyncio.create_task(commit())
    await asyncio.sleep(0.3)
    assert not late.done()
    for task in (late, running):
        task.cancel()
    await asyncio.wait([late, running])


async def test_every_column_that_is_copied_has_the_type_that_is_sent(connection: Connection) -> None:
    cursor = await connection.execute(
        """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
           WHERE attrelid = 'trajectory_node'::regclass AND attnum > 0"""
    )
    names = {"int4": "integer", "int2": "smallint", "int8": "bigint", "bool": "boolean", "float4": "real"}
    table: dict[str, str] = dict(await cursor.fetchall())
    sent = {
        name: names.get(kind, kind).replace("int4", "integer") for name, kind in node_rows.COLUMNS.items()
    }
    assert {name: table.get(name) for name in sent} == sent
