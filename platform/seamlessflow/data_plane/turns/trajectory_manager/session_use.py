"""How much of its bounds a session has used, and how much it has under way.

Use is counted from the session's rows when it is read back, and as rows are made afterwards; so the counts
survive a gateway. A turn counts once, however often its request arrives: it is open until its rows are made or its
request ends, and an abandoned turn that a retry continues is the same turn. Tokens of abandoned turns count, because
they were sampled.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.store.turns.node_rows import NodeRow


@dataclass(slots=True)
class SessionUse:
    num_turns: int = 0  # recorded whole
    num_tokens: int = 0  # sampled
    num_requests: int = 0  # being served
    num_open_turns: int = 0  # of these requests, those whose rows are not made yet
    num_open_answers: int = 0  # of these requests

    def restore(self, rows: Iterable[NodeRow]) -> None:
        """Count what a session had used when it was read back."""
        sampled = [row for row in rows if row.node.kind is NodeKind.SAMPLED]
        self.num_turns = len({row.facts.turn_id for row in sampled if not row.node.is_partial})
        self.num_tokens = sum(row.node.num_tokens for row in sampled)

    def begin(self, num_answers: int) -> None:
        self.num_open_turns += 1
        self.num_open_answers += num_answers

    def end(self, num_answers: int, *, is_recorded: bool) -> None:
        self.num_open_turns -= not is_recorded
        self.num_open_answers -= num_answers

    def record(self) -> None:
        """Count an open turn as a recorded one."""
        self.num_turns += 1
        self.num_open_turns -= 1
