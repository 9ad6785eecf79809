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
    """Lag of the oldest and of the newest trained token of each sample, [S]; 0 for a sample without any."""

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
    """Lags of S samples laid out as in `core.batching.format`: `sample_starts` is [S + 1], the others [T]."""
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


@dataclass(frozen=True, slots=True)
class StalenessBound:
    """How far a sampler may lag behind the step that trains its tokens. All arithmetic on the bound is here."""

    max_lag: int  # in policy versions; 0: on-policy only

    def allows(self, lag: int) -> bool:
        return lag <= self.max_lag

    def oldest_version(self, *, step_version: int) -> int:
        """The oldest version whose tokens may be trained by a step that starts at `step_version`."""
        return step_version - self.max_lag

    def is_beyond(self, version: int, *, step_version: int) -> bool:
        return not self.allows(step_version - version)

    @property
    def num_batches_ahead(self) -> int:
        """Batches that may be under way at once: the one being trained, and one for each version of lag."""
        return self.max_lag + 1

    @property
    def num_batches_per_turn(self) -> int:
        """Batches that one turn on a shared machine may train: half of the bound stays for rollout meanwhile."""
        return 1 + self.max_lag // 2

    def admitted_samples(self, lags: SampleLags) -> NDArray[np.bool_]:
        """Which samples may be trained, [S]: known, not of the future, their oldest token within the bound."""
        return lags.is_known & (lags.newest >= 0) & (lags.oldest <= self.max_lag)

    def admitted_tokens(self, versions: NDArray[np.int32], *, step_version: int) -> NDArray[np.bool_]:
        """Which tokens may be trained by themselves, [T]: known, not of the future, within the bound."""
        is_admitted: NDArray[np.bool_] = (
            (versions >= 0) & (versions <= step_version) & (step_version - versions <= self.max_lag)
        )
        return is_admitted


ON_POLICY = StalenessBound(0)
