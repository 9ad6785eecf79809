"""The staleness bound of a job as a value: every comparison with it is made here.

It belongs to the job spec, which processes without numpy also read, so numpy is not imported at run time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seamlessflow.core.algorithms.staleness import SampleLags


@dataclass(frozen=True, slots=True)
class StalenessBound:
    """How far a sampler may lag behind the step that trains its tokens. All arithmetic on the bound is here."""

    max_lag: int  # in policy versions; 0: on-policy only

    def allows(self, lag: int) -> bool:
        return lag <= self.max_lag

    def oldest_version(self, *, step_version: int) -> int:
        """Return the oldest version whose tokens a step that starts at `step_version` may train on."""
        return step_version - self.max_lag

    def is_beyond(self, version: int, *, step_version: int) -> bool:
        return not self.allows(step_version - version)

    @property
    def num_batches_ahead(self) -> int:
        """Number of batches that may be in progress at once: the one being trained, and one for each version of lag."""
        return self.max_lag + 1

    @property
    def num_batches_per_turn(self) -> int:
        """Number of batches that one turn on a shared machine may train; half of the bound is left for rollout in the
        meantime.
        """
        return 1 + self.max_lag // 2

    def admitted_samples(self, lags: "SampleLags") -> "NDArray[np.bool_]":
        """Return which samples may be trained, [S]: versions known and not of the future, oldest token within the
        bound."""
        return lags.is_known & (lags.newest >= 0) & (lags.oldest <= self.max_lag)

    def admitted_tokens(self, versions: "NDArray[np.int32]", *, step_version: int) -> "NDArray[np.bool_]":
        """Return which tokens may be trained on their own, [T]: known, not of the future, within the bound."""
        is_admitted: NDArray[np.bool_] = (
            (versions >= 0) & (versions <= step_version) & (step_version - versions <= self.max_lag)
        )
        return is_admitted


ON_POLICY = StalenessBound(0)
