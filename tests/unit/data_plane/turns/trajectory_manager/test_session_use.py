"""What a session has used is counted from its rows, and each turn once."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane.turns.trajectory_manager.session_use import SessionUse


def row(kind: NodeKind, turn: UUID, num_tokens: int, *, is_partial: bool = False) -> Any:
    node = SimpleNamespace(kind=kind, is_partial=is_partial, num_tokens=num_tokens)
    return SimpleNamespace(node=node, facts=SimpleNamespace(turn_id=turn))


def test_a_session_that_is_read_back_has_used_what_its_rows_say() -> None:
    one, two, abandoned = uuid4(), uuid4(), uuid4()
    use = SessionUse()
    use.restore(
        [
            row(NodeKind.ROOT, one, 100),
            row(NodeKind.SAMPLED, one, 3),
            row(NodeKind.SAMPLED, one, 4),  # the second of its answers
            row(NodeKind.PROMPT, two, 10),
            row(NodeKind.SAMPLED, two, 5),
            row(NodeKind.SAMPLED, abandoned, 7, is_partial=True),
        ]
    )
    assert (use.num_turns, use.num_tokens) == (2, 19)


def test_a_turn_is_either_open_or_recorded() -> None:
    use = SessionUse()
    use.begin(2)
    assert (use.num_turns, use.num_open_turns, use.num_open_answers) == (0, 1, 2)
    use.record()
    assert (use.num_turns, use.num_open_turns, use.num_open_answers) == (1, 0, 2)
    use.end(2, is_recorded=True)
    assert (use.num_turns, use.num_open_turns, use.num_open_answers) == (1, 0, 0)
    use.begin(1)
    use.end(1, is_recorded=False)
    assert (use.num_turns, use.num_open_turns, use.num_open_answers) == (1, 0, 0)
