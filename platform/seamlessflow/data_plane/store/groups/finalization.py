"""The statements before a group is finalized: lock groups, count their outcomes, compare their rewards.

Invariant: groups are locked in the order of their ids, so two bursts of outcomes wait for one another but never
deadlock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.lifecycle.groups import RUNNING_GROUP_STATES, DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.data_plane.store.groups.group_rows import OpenGroup
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, DropCause, GroupState, SessionState, running=RUNNING_GROUP_STATES)


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
    return [
        LockedGroup(row.job_id, OpenGroup(row.id, row.index, row.task, row.size, row.evaluation_version))
        for row in await named_rows(connection, SQL["lock"], {"groups": list(group_ids)})
    ]


async def num_rewarded_note(connection: Connection, num_rewarded: Mapping[UUID, int]) -> None:
    """Store how many outcomes running groups have so far."""
    if num_rewarded:
        values = {"groups": list(num_rewarded), "nums": list(num_rewarded.values())}
        await connection.execute(SQL["note_rewarded"], values)


async def contrast_read(connection: Connection, job_id: UUID, group_id: UUID) -> Contrast:
    """Read the contrast of a group with at least one outcome."""
    (row,) = await named_rows(connection, SQL["contrast"], {"job": job_id, "group": group_id})
    return Contrast(float(row.lowest), float(row.highest), row.num_replaced)
