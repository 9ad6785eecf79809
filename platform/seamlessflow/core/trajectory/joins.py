"""How the turns of a session joined its conversations: how many cleanly, and why the others did not.

`session_joins` takes the nodes of one session, and returns counts. An agent may lead several conversations, such as a
request for a title beside its task. Every recorded turn could join one, except those that began one. A root that breaks
a conversation, because its history or its system prompt changed, begins none. A turn joins as its prompt does: the
first recorded turn under a prompt has the prompt's cause, and each further one is a repetition. Partial answers were
never acknowledged, so they do not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.trajectory.prefix_tree import ForkCause

FIRST_CAUSES = (None, ForkCause.NEW_ROOT)  # causes of the roots that begin a conversation


@dataclass(frozen=True, slots=True)
class JoinNode:
    """What a join depends on. `cause`: of prompts and roots, why they did not join cleanly."""

    index: int
    parent: int | None
    is_sampled: bool
    turn_id: UUID
    is_partial: bool = False
    cause: ForkCause | None = None


@dataclass(frozen=True, slots=True)
class Joins:
    """`num_turns` counts the turns that could join a conversation; those that are not clean have a cause each."""

    num_clean: int
    num_turns: int
    causes: Mapping[ForkCause, int]
    num_conversations: int = 0


def session_joins(nodes: Sequence[JoinNode]) -> Joins:
    """Count the joins of one session; the order of its nodes does not matter."""
    prompts = {node.index: node for node in nodes if not node.is_sampled}
    turns = {(node.parent, node.turn_id) for node in nodes if node.is_sampled and not node.is_partial}
    counts: Counter[ForkCause | None] = Counter()
    num_conversations = 0
    for parent, num_turns in Counter(parent for parent, _ in turns).items():
        counts[ForkCause.REPEAT] += num_turns - 1
        if parent is None:
            continue
        prompt = prompts[parent]
        if prompt.parent is None and prompt.cause in FIRST_CAUSES:
            num_conversations += 1
        else:
            counts[prompt.cause] += 1
    return joins_of(counts.items(), num_conversations)


def joins_of(counts: Iterable[tuple[ForkCause | None, int]], num_conversations: int) -> Joins:
    """Add up numbers of turns by cause; None is the cause of a clean join."""
    totals: Counter[ForkCause | None] = Counter()
    for cause, number in counts:
        totals[cause] += number
    causes = {cause: totals[cause] for cause in ForkCause if totals[cause]}
    return Joins(totals[None], totals.total(), causes, num_conversations)
