"""Cutting a batch into mini-batches of whole groups, and the order of their optimizer steps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.batching.mini_batches import mini_batch_steps, mini_batches_cut

GROUPS = st.lists(st.integers(0, 20), min_size=1, max_size=60).map(lambda g: np.array(g, dtype=np.int32))


@given(groups=GROUPS, num=st.integers(1, 12), seed=st.integers(0, 100), number=st.integers(1, 100))
def test_each_group_is_whole_in_one_mini_batch(groups: np.ndarray, num: int, seed: int, number: int) -> None:
    parts = mini_batches_cut(groups, num, seed=seed, batch_number=number)
    assert len(parts) == num
    assert (np.sum(parts, axis=0) == 1).all()
    held = [set(groups[part].tolist()) for part in parts]
    assert sum(map(len, held)) == len(set(groups.tolist()))
    assert max(map(len, held)) - min(map(len, held)) <= 1
    again = mini_batches_cut(groups, num, seed=seed, batch_number=number)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def test_batches_and_seeds_are_cut_differently() -> None:
    groups = np.repeat(np.arange(16), 4).astype(np.int32)
    cuts = {
        (seed, number): np.flatnonzero(
            mini_batches_cut(groups, 4, seed=seed, batch_number=number)[0]
        ).tolist()
        for seed in (0, 1)
        for number in (1, 2)
    }
    assert len({tuple(samples) for samples in cuts.values()}) == len(cuts)


@given(
    has_work=st.lists(st.booleans(), min_size=1, max_size=8),
    num_epochs=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_each_epoch_passes_once_over_what_has_work(has_work: list[bool], num_epochs: int, seed: int) -> None:
    steps = mini_batch_steps(has_work, num_epochs, seed=seed, batch_number=3)
    assert [step.offset for step in steps] == sorted({step.offset for step in steps})
    working = [index for index, works in enumerate(has_work) if works]
    for epoch in range(num_epochs):
        offsets = range(epoch * len(has_work), (epoch + 1) * len(has_work))
        assert sorted(step.mini_batch for step in steps if step.offset in offsets) == working
    assert [step.mini_batch for step in steps[: len(working)]] == working
    assert steps == mini_batch_steps(has_work, num_epochs, seed=seed, batch_number=3)


def test_later_epochs_have_orders_of_their_own() -> None:
    steps = mini_batch_steps([True] * 8, 3, seed=0, batch_number=1)
    orders = {tuple(step.mini_batch for step in steps[first : first + 8]) for first in (0, 8, 16)}
    assert len(orders) == 3
