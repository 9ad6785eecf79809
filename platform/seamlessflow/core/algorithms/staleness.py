"""The staleness rule: which samples of a batch may be trained at a given policy version.

Lag = version of the trainer when the step starts - version that sampled the token. A sample is admitted iff the oldest
of its trained tokens lags by at most `max_staleness` (`StalenessBound`). A trained token whose version is unknown
(negative) or lies in the future of the trainer is never admitted: what cannot be proven is not trained.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SampleLags:
    """Lags of the oldest and the newest trained token of each sample, [S]; 0 for a sample that has none."""

    oldest: NDArray[np.int64]
    newest: NDArray[np.int64]
    is_known: NDArray[np.bool_]  # no trained token of an unknown version


def sample_lags(
    *,
    sample_starts: NDArray[np.int32],
    loss_mask: NDArray[np.uint8],
    versions: NDArray[np.int32],
    step_version: int,
) -> SampleLags:
    """Return the lags of S samples laid out as in `core.batching.format`: `sample_starts` is [S + 1], the others are
    [T]."""
    num_samples = len(sample_starts) - 1
    oldest = np.zeros(num_samples, dtype=np.int64)
    newest = np.zeros(num_samples, dtype=np.int64)
    is_known = np.ones(num_samples, dtype=np.bool_)
    for sample in range(num_samples):
        span = slice(int(sample_starts[sample]), int(sample_starts[sample + 1]))
        trained = versions[span][loss_mask[span] != 0]
        if len(trained) == 0:
            continue
        oldest[sample] = step_version - int(trained.min())
        newest[sample] = step_version - int(trained.max())
        is_known[sample] = trained.min() >= 0
    return SampleLags(oldest=oldest, newest=newest, is_known=is_known)
