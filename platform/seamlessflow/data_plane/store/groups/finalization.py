"""The statements before a group is finalized: lock groups, count their outcomes, compare their rewards.

Invariant: groups are locked in the order of their ids, so two bursts of outcomes wait for one another but never
deadlock.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.groups import RUNNING_GROUP_STATES, DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import OpenGroup
from seamlessflow.data_plane.store.values import sql_literal

_GROUP_DROPPED = sql_literal(GroupState.DROPPED)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)

_RUNNING = sorted(state.value for state in RUNNING_GROUP_STATES)


@dataclass(frozen=True, slots=True)
class LockedGroup:
    """A running group that is locked until the transaction ends."""

    job_id: UUID
    group: OpenGroup


@dataclass(frozen=True, slots=True)
class Contrast:
    """The range of a group's rewards, and how many groups without contrast were replaced since the last batch."""

    lowest: float
    highest: float
    num_replaced: int


async def groups_lock(connection: Connection, group_ids: Sequence[UUID]) -> list[LockedGroup]:
    """Lock the groups that still run, and return them."""
    cursor = await connection.execute(
        """SELECT job_id, id, index, task, size, evaluation_version FROM trajectory_group
           WHERE id = ANY(%s) AND state = ANY(%s) ORDER BY id FOR UPDATE""",
        [list(group_ids), _RUNNING],
    )
    return [LockedGroup(row[0], OpenGroup(*row[1:])) for row in await cursor.fetchall()]


async def num_rewarded_note(connection: Connection, num_rewarded: Mapping[UUID, int]) -> None:
    """Store how many outcomes running groups have so far."""
    if num_rewarded:
        await connection.execute(
            """UPDATE trajectory_group g SET num_rewarded = now.num
               FROM unnest(%s::uuid[], %s::int[]) AS now (id, num)
               WHERE g.id = now.id AND g.num_rewarded <> now.num""",
            [list(num_rewarded), list(num_rewarded.values())],
        )


async def contrast_read(connection: Connection, job_id: UUID, group_id: UUID) -> Contrast:
    """Read the contrast of a group with at least one outcome."""
    cursor = await connection.execute(
        f"""SELECT min(reward), max(reward),
                  (SELECT count(*) FROM trajectory_group WHERE job_id = %s AND state = {_GROUP_DROPPED}
                   AND drop_cause = %s AND replaced_for IS NULL)
           FROM trajectory_session WHERE group_id = %s AND state = {_SESSION_CLOSED}""",
        [job_id, DropCause.NO_CONTRAST.value, group_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    return Contrast(float(row[0]), float(row[1]), row[2])
