"""Moves groups from state to state: by compare-and-set, as `core.lifecycle.groups` allows, each with an event row.

A move and its events are one statement, however many groups move. Invariant: a group that is in another state than
expected stays as it is and gets no event.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GROUP_MOVES, DropCause, GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection, named_rows
from seamlessflow.data_plane.store.events import AUTHOR
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, GroupState, SessionState)


async def groups_move(
    connection: Connection,
    group_ids: Sequence[UUID],
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
) -> set[UUID]:
    """Move groups and write their events. Returns those that were in state `source`.

    `cause`: why they are dropped.
    """
    GROUP_MOVES.check(source, target)
    values = {"groups": list(group_ids), **_values(source, target, reason, cause)}
    return {row.id for row in await named_rows(connection, SQL["move"], values)}


async def group_move(
    connection: Connection,
    group_id: UUID,
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
) -> bool:
    """Move one group. Returns False if it was in another state."""
    return bool(await groups_move(connection, [group_id], source, target, reason=reason, cause=cause))


async def group_finalize(
    connection: Connection,
    group_id: UUID,
    source: GroupState,
    target: GroupState,
    *,
    reason: str,
    cause: DropCause | None = None,
    num_rewarded: int,
) -> int:
    """Move a locked group in state `source` on, and store the rewards and versions of its sessions.

    Returns how many other groups of its job are ready: they may train and are in no batch.
    """
    GROUP_MOVES.check(source, target)
    values = {"group": group_id, "num": num_rewarded, **_values(source, target, reason, cause)}
    (row,) = await named_rows(connection, SQL["finalize"], values)
    return int(row.num_ready)


def _values(source: GroupState, target: GroupState, reason: str, cause: DropCause | None) -> dict[str, Any]:
    return {
        "source": source.value,
        "target": target.value,
        "reason": reason,
        "cause": cause.value if cause else "",
        "author": AUTHOR,
    }
