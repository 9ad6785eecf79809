"""The conversation of a session, as its rows have it, for requests that name earlier answers by their identifiers.

It takes the texts of a session's nodes, in order of their index, and returns answers by their turns, and the messages
of a conversation up to an answer. Invariant: only answers that ended are returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.store.turns.node_texts import NodeText


@dataclass(frozen=True, slots=True)
class RecordedTurns:
    nodes: Sequence[NodeText]

    def answer(self, turn_id: UUID) -> NodeText | None:
        """Return the first answer of a turn; None if the session has no such turn."""
        found = (node for node in self.nodes if node.turn_id == turn_id and node.kind == NodeKind.SAMPLED)
        return next((node for node in found if not node.is_partial), None)

    def messages_up_to(self, node: NodeText) -> list[dict[str, Any]]:
        """Return the messages of the conversation that ends with `node`."""
        path = [node]
        while (parent := path[-1].parent) is not None:
            path.append(self.nodes[parent])
        return [message for above in reversed(path) for message in above.messages]
