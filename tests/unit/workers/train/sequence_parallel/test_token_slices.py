"""Slices of rows lose and double nothing, whatever the length and the number of ranks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow_workers.train.sequence_parallel.slices import rows_pad, token_slice
from tests.fixtures.random_trees import tree_layout_random


@given(
    length=st.integers(1, 40),
    num_ranks=st.integers(1, 8),
    num_rows=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_slices_put_together_are_the_rows_and_every_prediction_is_made_once(
    length: int, num_ranks: int, num_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 50, (num_rows, length))
    columns = rng.integers(0, length, 12)
    padded = rows_pad(rows, num_ranks)
    slices = [token_slice(padded, columns, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]

    assert len({part.token_ids.shape for part in slices}) == 1
    whole = np.concatenate([part.token_ids for part in slices], axis=1)
    assert (whole[:, :length] == rows).all()
    assert not whole[:, length:].any()
    assert whole.shape[1] < length + num_ranks
    assert np.concatenate([part.positions[0] for part in slices]).tolist() == list(range(whole.shape[1]))
    predictions = np.concatenate([part.predictions for part in slices])
    assert sorted(predictions.tolist()) == list(range(len(columns)))
    width = whole.shape[1] // num_ranks
    for rank, part in enumerate(slices):
        assert (part.columns + rank * width == columns[part.predictions]).all()
        assert ((part.columns >= 0) & (part.columns < width)).all()


@given(
    length=st.integers(1, 40),
    num_ranks=st.integers(1, 8),
    num_predictions=st.integers(0, 30),
    seed=st.integers(0, 99),
)
def test_every_head_gets_as_many_predictions_as_any_other(
    length: int, num_ranks: int, num_predictions: int, seed: int
) -> None:
    """Wherever they are made; what ranks send and receive is the same."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(int(rng.integers(length)), length, num_predictions)
    rows = rows_pad(np.ones((1, length), dtype=np.int64), num_ranks)
    slices = [token_slice(rows, columns, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    sent = [np.split(part.predictions, np.cumsum(part.deal.num_sent)) for part in slices]
    for rank, part in enumerate(slices):
        received = [by_rank[rank] for by_rank in sent]
        assert [len(each) for each in received] == part.deal.num_received
        assert np.concatenate(received).tolist() == part.deal.predictions.tolist()
        assert len(part.deal.predictions) - num_predictions // num_ranks in (0, 1)
    dealt = np.concatenate([part.deal.predictions for part in slices])
    assert sorted(dealt.tolist()) == list(range(num_predictions))


@given(seed=st.integers(0, 2**31), num_ranks=st.integers(1, 8))
def test_tokens_of_a_tree_keep_their_positions_on_their_paths(seed: int, num_ranks: int) -> None:
    layout = tree_layout_random(np.random.default_rng(seed), num_samples=5, max_length=6)
    rows = rows_pad(np.ones((1, layout.num_tokens), dtype=np.int64), num_ranks)
    positions = np.concatenate(
        [
            token_slice(
                rows, np.zeros(0, dtype=np.int64), rank=rank, num_ranks=num_ranks, positions=layout.positions
            ).positions[0]
            for rank in range(num_ranks)
        ]
    )
    assert (positions[: layout.num_tokens] == layout.positions).all()
    assert not positions[layout.num_tokens :].any()
