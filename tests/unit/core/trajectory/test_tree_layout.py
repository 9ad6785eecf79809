"""Trees in a flat array: derived arrays are the same as those from walking every branch."""

import numpy as np
import pytest
from hypothesis import given

from seamlessflow.core.trajectory.tree_layout import InvalidTreeLayout, TreeLayout
from tests.fixtures.random_trees import ancestor_mask, branch_tokens, tree_layouts


@given(tree_layouts())
def test_positions_ancestors_and_paths_are_those_of_the_branches(layout: TreeLayout) -> None:
    branches = branch_tokens(layout)
    for branch, pieces in zip(branches, layout.paths(), strict=True):
        assert [t for piece in pieces for t in range(piece.start, piece.stop)] == branch
        assert layout.positions[branch].tolist() == list(range(len(branch)))
        assert layout.predecessors[branch].tolist() == [-1, *branch[:-1]]
    assert layout.num_linear_tokens == sum(map(len, branches))
    token = np.arange(layout.num_tokens)
    descends = (token[None, :] <= token[:, None]) & (token[:, None] < layout.descendant_ends[None, :])
    assert (descends == ancestor_mask(layout)).all()


@given(tree_layouts())
def test_sums_over_branches_and_paths_are_those_of_a_walk(layout: TreeLayout) -> None:
    branches = branch_tokens(layout)
    rng = np.random.default_rng(layout.num_tokens)
    by_branch, by_token = rng.normal(size=layout.num_samples), rng.normal(size=layout.num_tokens)
    expected = np.zeros(layout.num_tokens)
    for value, branch in zip(by_branch, branches, strict=True):
        expected[branch] += value
    np.testing.assert_allclose(layout.branch_sums(by_branch), expected, atol=1e-12)
    by_path = [sum(by_token[segment].sum() for segment in path) for path in layout.paths()]
    np.testing.assert_allclose(by_path, [by_token[branch].sum() for branch in branches], atol=1e-12)


@given(tree_layouts())
def test_trees_are_separate(layout: TreeLayout) -> None:
    branches = branch_tokens(layout)
    roots = [{branches[s][0] for s in range(tree.start, tree.stop)} for tree in layout.trees()]
    assert all(len(root) == 1 for root in roots)
    assert len(set().union(*roots)) == len(roots)
    assert sum(tree.stop - tree.start for tree in layout.trees()) == layout.num_samples


def test_the_example_of_the_docstring_holds() -> None:
    layout = TreeLayout(np.array([0, 4, 6, 7]), np.array([-1, 2, 0]))
    assert branch_tokens(layout) == [[0, 1, 2, 3], [0, 1, 2, 4, 5], [0, 6]]
    assert layout.descendant_ends.tolist() == [7, 6, 6, 4, 6, 6, 7]


@pytest.mark.parametrize(
    "starts, parents, said",
    [
        ([0, 4, 6], [-1, 4], "not on the path"),  # its own token
        ([0, 4, 6, 7], [-1, 1, 3], "not on the path"),  # not on the path of sample 1
        ([0, 4, 6, 7], [-1, -1, 3], "not on the path"),  # another tree
        ([0, 4, 4], [-1, 1], "no token"),
        ([1, 4], [-1], "first of them 0"),
        ([0, 4], [-1, -1], "S parents"),
    ],
)
def test_arrays_that_are_not_trees_in_depth_first_order_are_refused(
    starts: list[int], parents: list[int], said: str
) -> None:
    with pytest.raises(InvalidTreeLayout, match=said):
        TreeLayout(np.array(starts), np.array(parents))
