"""The order in which recorded groups are trained: a function of the seed, complete epochs, each
group once per epoch."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.dataset.epochs import DatasetEpochs

PLANS = st.builds(
    DatasetEpochs,
    num_groups=st.integers(1, 40),
    groups_per_batch=st.integers(1, 12),
    num_epochs=st.integers(1, 4),
    seed=st.integers(0, 2**31 - 1),
    is_shuffled=st.booleans(),
)


def batches(plan: DatasetEpochs) -> list[list[int]]:
    found = (plan.batch(number) for number in range(1, plan.num_batches + 1))
    return [batch.positions.tolist() for batch in found if batch is not None]


@given(PLANS)
def test_each_epoch_contains_every_group_once(plan: DatasetEpochs) -> None:
    made = batches(plan)
    assert len(made) == plan.num_batches
    for epoch in range(plan.num_epochs):
        own = made[epoch * plan.batches_per_epoch : (epoch + 1) * plan.batches_per_epoch]
        assert sorted(itertools.chain(*own)) == list(range(plan.num_groups))
        assert all(len(batch) == plan.groups_per_batch for batch in own[:-1])


@given(PLANS, st.randoms(use_true_random=False))
def test_a_batch_that_is_requested_again_is_the_same(plan: DatasetEpochs, chance: object) -> None:
    made = batches(plan)
    for number in np.random.default_rng(plan.seed).permutation(plan.num_batches):
        again = DatasetEpochs(
            plan.num_groups, plan.groups_per_batch, plan.num_epochs, plan.seed, plan.is_shuffled
        )
        batch = again.batch(int(number) + 1)
        assert batch is not None
        assert batch.positions.tolist() == made[number]


@given(PLANS)
def test_completed_epochs_grow_to_their_number_and_nothing_follows(plan: DatasetEpochs) -> None:
    done = [batch.epochs_done for n in range(1, plan.num_batches + 1) if (batch := plan.batch(n)) is not None]
    assert done == sorted(set(done))
    assert done[-1] == plan.num_epochs
    assert plan.batch(plan.num_batches + 1) is None
    assert plan.batch(0) is None


def test_groups_are_in_recorded_order_unless_shuffled() -> None:
    plan = DatasetEpochs(num_groups=5, groups_per_batch=2, num_epochs=2, seed=7, is_shuffled=False)
    assert batches(plan) == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]


def test_different_epochs_and_seeds_have_different_orders() -> None:
    orders = {tuple(itertools.chain(*batches(DatasetEpochs(50, 50, 1, seed)))) for seed in range(20)}
    assert len(orders) == 20
    first, second = batches(DatasetEpochs(50, 50, 2, 0))
    assert first != second


def test_the_order_of_a_seed_never_changes() -> None:
    """A job that continues under another release must continue in the same order."""
    plan = DatasetEpochs(num_groups=8, groups_per_batch=8, num_epochs=2, seed=3)
    assert batches(plan) == [[0, 4, 7, 1, 5, 6, 3, 2], [0, 6, 2, 1, 3, 7, 4, 5]]


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_there_is_no_batch_outside_the_epochs(number: int) -> None:
    assert DatasetEpochs(num_groups=2, groups_per_batch=2, num_epochs=2, seed=0).batch(number) is None
