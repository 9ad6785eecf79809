"""Advantages by rank: only the order of the rewards within a group counts, not their size."""

from example_extension.declarations import RankOptions
from seamlessflow.extensions import Counts, ExtensionOptions, Floats


class RankEstimator:
    def __init__(self, options: RankOptions) -> None:
        self._spread = options.spread

    def of_group(self, rewards: Floats) -> Floats:
        """Rewards 0, 1, 1, 5 give -1, 0, 0, 1 with a spread of 1: equal rewards share the mean of their ranks."""
        below = (rewards[None, :] < rewards[:, None]).sum(axis=1)
        above = (rewards[None, :] > rewards[:, None]).sum(axis=1)
        result: Floats = self._spread * (below - above) / max(len(rewards) - 1, 1)
        return result

    def of_batch(self, advantages: Floats, num_tokens: Counts) -> Floats:
        return advantages


def create(options: ExtensionOptions) -> RankEstimator:
    assert isinstance(options, RankOptions)
    return RankEstimator(options)
