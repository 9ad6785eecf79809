"""A finished session with its outcome: what batches are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, Node, NodeKind


@dataclass(frozen=True, slots=True)
class FinishedSession:
    """`reward` is the outcome, before any shaping."""

    reward: float
    nodes: Sequence[Node]
    domain: str = ""  # of its task, "" if it names none
    num_turns: int = 0
    num_sampled_tokens: int = 0
    is_truncated: bool = False  # an answer was cut by the limit on its tokens
    is_timeout: bool = False
    is_stale: bool = (
        False  # beyond the staleness bound: its tokens are not trained, but its outcome is still compared
    )

    @property
    def longest_answer_tokens(self) -> int:
        """The number of sampled tokens in its longest turn."""
        answers = (node for node in self.nodes if node.kind is NodeKind.SAMPLED and not node.is_partial)
        return max((len(node.token_ids) // TOKEN_BYTES for node in answers), default=0)
