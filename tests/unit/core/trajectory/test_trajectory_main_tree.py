"""Which tree of a session is the main one, and what a batch trains of the others."""

import numpy as np
import pytest

from seamlessflow.core.batching.finished import FinishedSession, with_trees
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.training.section import TrainedTrees
from seamlessflow.core.trajectory.flatten import flatten, unroll
from seamlessflow.core.trajectory.main_tree import main_tree
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind


def node(index: int, parent: int | None, ids: list[int], *, is_partial: bool = False) -> Node:
    """A node whose tokens are sampled if its index is odd."""
    packed = np.array(ids, dtype="<i4").tobytes()
    if index % 2 == 0:
        kind = NodeKind.ROOT if parent is None else NodeKind.PROMPT
        return Node(index, parent, kind, packed, (), 0)
    logprobs = np.zeros(len(ids), dtype="<f4").tobytes()
    return Node(
        index, parent, NodeKind.SAMPLED, packed, (), 0, logprobs=logprobs, spans=(0, 1), is_partial=is_partial
    )


TITLE = [node(0, None, [100]), node(1, 0, [1, 2, 3])]
TASK = [node(2, None, [200]), node(3, 2, [4, 5]), node(4, 3, [201]), node(5, 4, [6, 7])]
BRANCH = node(7, 2, [8])


def test_the_tree_with_the_most_sampled_tokens_is_the_main_one() -> None:
    """A longer prompt, and the order of beginning, do not matter."""
    assert main_tree([*TITLE, *TASK]) == TASK
    assert main_tree([node(0, None, [100] * 50), TITLE[1], *TASK]) == TASK
    assert main_tree(TITLE) == TITLE
    assert main_tree([]) == []


def test_all_branches_of_a_tree_count_and_partial_answers_do_not() -> None:
    four = [node(0, None, [100]), node(1, 0, [1, 2, 3, 9])]
    assert main_tree([*four, *TASK]) == four, "of equal trees the first"
    assert main_tree([*four, *TASK, node(6, 5, [202]), BRANCH]) == [*TASK, node(6, 5, [202]), BRANCH]
    partial = node(7, 2, [8] * 9, is_partial=True)
    assert main_tree([*four, *TASK, node(6, 5, [202]), partial]) == four


@pytest.mark.parametrize("trees,trained", [("all", [1, 2, 3, 4, 5, 6, 7]), ("main", [4, 5, 6, 7])])
@pytest.mark.parametrize("is_tree", [True, False])
def test_a_job_says_which_trees_its_batches_train(trees: str, trained: list[int], is_tree: bool) -> None:
    body = {"name": "j", "model": {"source": "m"}, "environment": {"name": "external"}}
    spec = JobSpec.model_validate(body | {"train": {"num_updates": 1, "trees": trees}})
    session = FinishedSession(1.0, [*TITLE, *TASK], num_turns=3, num_sampled_tokens=7)
    (kept,) = with_trees([session], spec.train.trees)
    flat = flatten([kept.nodes])
    flat = flat if is_tree else unroll(flat, is_trained_once=True)
    assert flat.token_ids[flat.loss_mask == 1].tolist() == trained
    assert (kept.reward, kept.num_turns, kept.num_sampled_tokens) == (1.0, 3, 7)


def test_every_tree_is_trained_unless_the_job_says_otherwise() -> None:
    body = {
        "name": "j",
        "model": {"source": "m"},
        "environment": {"name": "external"},
        "train": {"num_updates": 1},
    }
    assert JobSpec.model_validate(body).train.trees is TrainedTrees.ALL
