"""Counts of clean joins and of the causes of others, on small sessions written by hand."""

from uuid import UUID

from seamlessflow.core.trajectory.joins import JoinNode, Joins, joins_of, session_joins
from seamlessflow.core.trajectory.prefix_tree import ForkCause

TURNS = [UUID(int=number) for number in range(9)]


def prompt(index: int, parent: int | None, turn: int, cause: ForkCause | None = None) -> JoinNode:
    return JoinNode(index, parent, False, TURNS[turn], cause=cause)


def answer(index: int, parent: int, turn: int, *, is_partial: bool = False) -> JoinNode:
    return JoinNode(index, parent, True, TURNS[turn], is_partial)


def test_a_session_without_turns_has_none_that_could_join() -> None:
    assert session_joins([]) == Joins(0, 0, {}, num_conversations=0)
    assert session_joins([prompt(0, None, 0), answer(1, 0, 0)]) == Joins(0, 0, {}, num_conversations=1)


def test_each_turn_but_the_first_is_clean_or_has_its_cause() -> None:
    nodes = [
        *(prompt(0, None, 0), answer(1, 0, 0)),
        *(prompt(2, 1, 1), answer(3, 2, 1)),
        *(prompt(4, 1, 2, ForkCause.HISTORY), answer(5, 4, 2)),
        *(prompt(6, None, 3, ForkCause.SYSTEM), answer(7, 6, 3)),
    ]
    assert session_joins(nodes) == Joins(
        1, 3, {ForkCause.SYSTEM: 1, ForkCause.HISTORY: 1}, num_conversations=1
    )
    assert session_joins(nodes[::-1]) == session_joins(nodes)


def test_a_conversation_beside_the_first_is_no_unclean_join() -> None:
    """A request for a title comes first, and the task has turns of its own."""
    nodes = [
        *(prompt(0, None, 0), answer(1, 0, 0)),
        *(prompt(2, None, 1, ForkCause.NEW_ROOT), answer(3, 2, 1)),
        *(prompt(4, 3, 2), answer(5, 4, 2)),
        *(prompt(6, None, 3, ForkCause.NEW_ROOT), answer(7, 6, 3, is_partial=True)),
    ]
    found = session_joins(nodes)
    assert (found.num_clean, found.num_turns, found.causes) == (1, 1, {})
    assert found.num_conversations == 2


def test_the_answers_of_one_request_are_one_turn_and_a_further_request_is_a_repetition() -> None:
    siblings = [prompt(0, None, 0), answer(1, 0, 0), answer(2, 0, 0)]
    assert session_joins(siblings).num_turns == 0
    repeated = [*siblings, answer(3, 0, 1)]
    assert session_joins(repeated) == Joins(0, 1, {ForkCause.REPEAT: 1}, num_conversations=1)


def test_an_answer_that_was_never_acknowledged_does_not_count() -> None:
    nodes = [prompt(0, None, 0), answer(1, 0, 0), prompt(2, 1, 1), answer(3, 2, 1, is_partial=True)]
    assert session_joins(nodes) == Joins(0, 0, {}, num_conversations=1)
    assert session_joins([*nodes, answer(4, 2, 2)]) == Joins(1, 1, {}, num_conversations=1)


def test_counts_of_a_job_add_up() -> None:
    counts = [(None, 3), (ForkCause.CONTEXT, 1), (None, 2), (ForkCause.REPEAT, 0)]
    assert joins_of(counts, 4) == Joins(5, 6, {ForkCause.CONTEXT: 1}, num_conversations=4)
