"""Moves of groups on PostgreSQL: one statement moves any number of them and writes their events."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection

from seamlessflow.core.lifecycle.groups import DropCause, GroupState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import NewGroup, group_insert
from seamlessflow.data_plane.store.groups.moves import group_finalize, group_move, groups_move
from tests.fixtures.gateway_world import GatewayWorld

_EVENTS = """SELECT subject_id, from_state, to_state, reason, data->>'index' FROM common_event
             WHERE subject_type = 'group' ORDER BY id"""


@pytest.fixture
async def world(migrated_database_url: str, tmp_path: Path) -> AsyncIterator[GatewayWorld]:
    world = GatewayWorld(migrated_database_url, tmp_path)
    world.make_job()
    yield world
    world.claims.close()


@pytest.fixture
async def connection(world: GatewayWorld) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(world.database_url, autocommit=True) as connection:
        yield connection


async def groups_made(connection: Connection, world: GatewayWorld, num: int) -> list[UUID]:
    made = [
        await group_insert(connection, NewGroup(world.project_id, world.job_id, index, index, {}, size=2))
        for index in range(num)
    ]
    return [group.group_id for group in made]


async def test_only_groups_in_the_expected_state_move_and_are_told(
    connection: Connection, world: GatewayWorld
) -> None:
    first, second, third = await groups_made(connection, world, 3)
    assert await group_move(
        connection, second, GroupState.OPEN, GroupState.DROPPED, reason="flat", cause=DropCause.NO_CONTRAST
    )
    asked = [third, second, first, uuid4()]
    moved = await groups_move(connection, asked, GroupState.OPEN, GroupState.READY, reason="whole")
    assert moved == {first, third}
    states = await connection.execute("SELECT state, drop_cause FROM trajectory_group ORDER BY index")
    assert await states.fetchall() == [("ready", ""), ("dropped", DropCause.NO_CONTRAST), ("ready", "")]
    assert await (await connection.execute(_EVENTS)).fetchall() == [
        (second, "open", "dropped", "flat", "1"),
        (first, "open", "ready", "whole", "0"),
        (third, "open", "ready", "whole", "2"),
    ]


async def test_a_finalized_group_learns_how_many_others_are_ready(
    connection: Connection, world: GatewayWorld
) -> None:
    counts = [
        await group_finalize(
            connection, group_id, GroupState.OPEN, GroupState.READY, reason="whole", num_rewarded=2
        )
        for group_id in await groups_made(connection, world, 3)
    ]
    assert counts == [0, 1, 2]
