"""The staleness rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.algorithms.staleness import SampleLags, sample_lags
from seamlessflow.core.algorithms.staleness_bound import StalenessBound

PROMPT = -1


def lags_of(*samples: list[tuple[int, int]], step_version: int) -> SampleLags:
    """Each sample is a list of (version, mask)."""
    flat = [token for sample in samples for token in sample]
    starts = np.cumsum([0, *(len(sample) for sample in samples)])
    return sample_lags(
        sample_starts=starts.astype(np.int32),
        loss_mask=np.array([mask for _, mask in flat], dtype=np.uint8),
        versions=np.array([version for version, _ in flat], dtype=np.int32),
        step_version=step_version,
    )


def test_the_oldest_trained_token_decides() -> None:
    lags = lags_of([(PROMPT, 0), (6, 1), (10, 1)], [(PROMPT, 0), (5, 1), (10, 1)], step_version=10)
    assert lags.oldest.tolist() == [4, 5]
    assert lags.newest.tolist() == [0, 0]
    assert StalenessBound(4).admitted_samples(lags).tolist() == [True, False]


def test_tokens_outside_the_loss_do_not_count() -> None:
    lags = lags_of([(PROMPT, 0), (0, 0), (10, 1)], step_version=10)
    assert StalenessBound(0).admitted_samples(lags).tolist() == [True]


def test_a_trained_token_of_unknown_version_is_never_admitted() -> None:
    lags = lags_of([(PROMPT, 1), (0, 1)], step_version=0)
    assert StalenessBound(1000).admitted_samples(lags).tolist() == [False]


def test_a_token_from_the_future_of_the_trainer_is_never_admitted() -> None:
    lags = lags_of([(2, 1), (3, 1)], step_version=2)
    assert StalenessBound(1000).admitted_samples(lags).tolist() == [False]


def test_a_sample_without_trained_tokens_is_not_stale() -> None:
    lags = lags_of([(PROMPT, 0)], [], step_version=9)
    assert StalenessBound(0).admitted_samples(lags).tolist() == [True, True]


@given(max_lag=st.integers(0, 20), version=st.integers(0, 60), step_version=st.integers(0, 60))
def test_all_forms_of_the_staleness_bound_agree(max_lag: int, version: int, step_version: int) -> None:
    bound = StalenessBound(max_lag)
    is_allowed = bound.allows(step_version - version)

    assert (version >= bound.oldest_version(step_version=step_version)) == is_allowed
    assert bound.is_beyond(version, step_version=step_version) != is_allowed
    admitted = bound.admitted_tokens(np.array([version], dtype=np.int32), step_version=step_version)
    assert admitted.tolist() == [is_allowed and version <= step_version]


@given(max_lag=st.integers(0, 20))
def test_batches_that_are_admitted_ahead_stay_within_the_bound(max_lag: int) -> None:
    """What the newest version samples now is trained, at the latest, after all batches ahead of
    it."""
    bound = StalenessBound(max_lag)

    assert bound.allows(bound.num_batches_ahead - 1)
    assert not bound.allows(bound.num_batches_ahead)
    assert bound.num_batches_per_turn <= bound.num_batches_ahead
