"""Which sessions of a group are too old to train."""

from seamlessflow.core.batching.finished import FinishedSession, marked_stale
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow.core.trajectory.version_spans import UNKNOWN_VERSION, Spans


def session(*spans: Spans, is_partial: bool = False) -> FinishedSession:
    nodes = [
        Node(
            index=index,
            parent=index - 1 if index else None,
            kind=NodeKind.SAMPLED,
            token_ids=bytes(8),
            digests=(),
            num_path_tokens=2 * (index + 1),
            spans=turn,
            is_partial=is_partial,
        )
        for index, turn in enumerate(spans)
    ]
    return FinishedSession(1.0, nodes)


def is_kept(finished: FinishedSession) -> bool:
    (result,) = marked_stale([finished], oldest_allowed=5)
    assert result.reward == finished.reward
    assert result.nodes == finished.nodes, "what it was is still known: its mode, its versions"
    return not result.is_stale


def test_a_session_with_one_token_beyond_the_bound_loses_its_tokens_and_keeps_its_outcome() -> None:
    assert is_kept(session((0, 5, 1, 6)))
    assert not is_kept(session((0, 4, 1, 6)))
    assert not is_kept(session((0, 6), (0, 7, 1, 4)))


def test_tokens_that_are_never_trained_do_not_make_a_session_stale() -> None:
    assert is_kept(session((0, UNKNOWN_VERSION, 1, 6)))
    assert is_kept(session((0, 2), is_partial=True))
