"""The texts of a session's nodes, without their tokens: what a request needs that names earlier answers.

Enters: the key of a session. Leaves: its nodes, in order of their index, with their messages.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.turns.node_rows import SessionKey


@dataclass(frozen=True, slots=True)
class NodeText:
    index: int
    parent: int | None
    kind: NodeKind
    turn_id: UUID
    messages: list[dict[str, Any]]
    finish_reason: str | None
    is_partial: bool
    flags: dict[str, Any]


async def node_texts_read(connection: Connection, key: SessionKey) -> list[NodeText]:
    cursor = await connection.execute(
        """SELECT node_index, parent_index, kind, turn_id, messages, finish_reason, is_partial, flags
           FROM trajectory_node WHERE month = %s AND session_id = %s ORDER BY node_index""",
        [key.month, key.session_id],
    )
    return [
        NodeText(index, parent, NodeKind(kind), turn, messages or [], reason, is_partial, flags)
        async for index, parent, kind, turn, messages, reason, is_partial, flags in cursor
    ]
