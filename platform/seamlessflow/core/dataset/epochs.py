"""Which recorded groups a numbered batch has: epochs over N groups, each epoch in its own order.

Pure: the same settings always give the same groups for the same number. Within an epoch each group
is in exactly one batch. No batch crosses the end of an epoch, so the last batch of an epoch may be
smaller.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

NUM_ORDERS_KEPT = 4  # each takes 8 bytes per group


@dataclass(frozen=True, slots=True)
class EpochBatch:
    """The groups of one batch. `positions` number the job's groups as they were recorded, 0 … N - 1; they are in
    training order."""

    epoch: int  # 0, 1, …
    positions: NDArray[np.int64]
    epochs_done: float  # after this batch is trained


@dataclass(frozen=True, slots=True)
class DatasetEpochs:
    """The batches of all epochs. `num_groups` and `groups_per_batch` are at least 1."""

    num_groups: int
    groups_per_batch: int
    num_epochs: int
    seed: int
    is_shuffled: bool = True

    @property
    def batches_per_epoch(self) -> int:
        return -(-self.num_groups // self.groups_per_batch)

    @property
    def num_batches(self) -> int:
        return self.batches_per_epoch * self.num_epochs

    def batch(self, number: int) -> EpochBatch | None:
        """Return batch `number` (1, 2, 3, …); None after the last epoch.

        5 groups, 2 a batch, not shuffled: 1 → [0, 1], 2 → [2, 3], 3 → [4], 4 → [0, 1] of the second
        epoch.
        """
        if not 1 <= number <= self.num_batches:
            return None
        epoch, index = divmod(number - 1, self.batches_per_epoch)
        first = index * self.groups_per_batch
        order = _order(self.num_groups, self.seed, epoch) if self.is_shuffled else np.arange(self.num_groups)
        positions = order[first : first + self.groups_per_batch]
        done = min(first + self.groups_per_batch, self.num_groups) / self.num_groups
        return EpochBatch(epoch=epoch, positions=positions, epochs_done=epoch + done)


@lru_cache(maxsize=NUM_ORDERS_KEPT)
def _order(num_groups: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return a permutation. NumPy guarantees the raw words of a bit generator across releases, but not its
    permutations."""
    words = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(num_groups)
    order = np.argsort(words, kind="stable").astype(np.int64)
    order.flags.writeable = False
    return order
