"""Packing trees into a token budget and dealing packs to ranks: nothing is lost or repeated, and bounds hold."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.batching.packing import deal, pack_samples
from seamlessflow.core.trajectory.tree_layout import TreeLayout
from tests.fixtures.random_trees import ancestor_mask, branch_tokens, tree_layouts


def draw_inputs(layout: TreeLayout, seed: int) -> dict[int, int]:
    """Choose some samples, and for some of them leave out their last own tokens."""
    rng = np.random.default_rng(seed)
    lengths = np.diff(layout.sample_starts)
    return {s: int(rng.integers(0, lengths[s] + 1)) for s in range(layout.num_samples) if rng.random() < 0.8}


@given(layout=tree_layouts(max_samples=14), seed=st.integers(0, 2**32 - 1), budget=st.integers(1, 60))
def test_every_sample_is_in_one_pack_with_everything_that_precedes_it(
    layout: TreeLayout, seed: int, budget: int
) -> None:
    num_inputs = draw_inputs(layout, seed)
    packs = pack_samples(layout, num_inputs, budget)
    assert sorted(sample for pack in packs for sample in pack.samples) == sorted(num_inputs)
    branches = branch_tokens(layout)
    for pack in packs:
        needed: set[int] = set()
        for sample in pack.samples:
            last = int(layout.sample_starts[sample]) + num_inputs[sample]
            needed |= {token for token in branches[sample] if token < last}
        assert pack.tokens.tolist() == sorted(needed)
        assert len(needed) <= budget or len(pack.samples) == 1


@given(layout=tree_layouts(max_samples=14), seed=st.integers(0, 2**32 - 1), budget=st.integers(4, 60))
def test_tokens_attend_to_the_same_tokens_in_a_pack_as_in_the_whole_tree(
    layout: TreeLayout, seed: int, budget: int
) -> None:
    whole = ancestor_mask(layout)
    for pack in pack_samples(layout, draw_inputs(layout, seed), budget):
        if not len(pack.tokens):
            continue
        own, before = pack.layout(layout)
        assert (ancestor_mask(own) == whole[np.ix_(pack.tokens, pack.tokens)]).all()
        assert own.positions.tolist() == layout.positions[pack.tokens].tolist()
        has_one = before >= 0
        assert pack.tokens[before[has_one]].tolist() == layout.predecessors[pack.tokens][has_one].tolist()


def test_a_tree_within_the_budget_stays_whole_and_a_larger_one_repeats_only_shared_tokens() -> None:
    layout = TreeLayout(
        np.array([0, 10, 12, 14, 16]), np.array([-1, 7, 7, 7])
    )  # paths of 10 tokens, 8 shared
    everything = dict.fromkeys(range(4), 2)
    everything[0] = 10
    (whole,) = pack_samples(layout, everything, 16)
    assert len(whole.tokens) == 16
    first, second = pack_samples(layout, everything, 12)
    assert (first.samples, second.samples) == ((0, 1), (2, 3))
    assert len(first.tokens) + len(second.tokens) == 16 + 8


@given(
    costs=st.lists(st.floats(0, 1e6), min_size=0, max_size=40),
    num_ranks=st.integers(1, 8),
)
def test_ranks_get_equally_many_packs_and_loads_that_differ_by_at_most_the_largest(
    costs: list[float], num_ranks: int
) -> None:
    ranks = deal(costs, num_ranks)
    assert sorted(index for rank in ranks for index in rank) == list(range(len(costs)))
    counts = [len(rank) for rank in ranks]
    assert max(counts) - min(counts) <= 1
    loads = [sum(costs[index] for index in rank) for rank in ranks]
    assert max(loads) - min(loads) <= max(costs, default=0.0) * (1 + 1e-9)
