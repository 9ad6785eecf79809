"""The main tree of a session: the rest to train if a job leaves out conversations beside the task.

Takes the nodes of one session, each behind its parent; returns those of one tree, in the same order. Invariant: the
same nodes always give the same tree, and a session with answers keeps some.
"""

from collections import Counter
from collections.abc import Sequence

from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind


def main_tree(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the nodes of the tree with the most sampled tokens; of equal ones, of the one that began first.

    All branches of a tree count. Partial answers were never acknowledged and do not.

    Example: of a request for a title (12 sampled tokens) and a task (900 in three turns), the nodes of the task.
    """
    root_of: dict[int, int] = {}
    sampled: Counter[int] = Counter()
    for node in nodes:
        root = node.index if node.parent is None else root_of[node.parent]
        root_of[node.index] = root
        is_counted = node.kind is NodeKind.SAMPLED and not node.is_partial
        sampled[root] += node.num_tokens if is_counted else 0
    if len(sampled) <= 1:
        return nodes
    main = max(sampled, key=lambda root: (sampled[root], -root))
    return [node for node in nodes if root_of[node.index] == main]
