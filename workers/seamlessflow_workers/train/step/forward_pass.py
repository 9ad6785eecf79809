"""Runs a micro-batch through a policy: arrays in, logprobs and entropies of its trained tokens out.

If several ranks compute sequences together (`train.parallel.sequence`), each has its slice of the tokens and as many
of the predictions. The results are then joined, so that every rank has all N, in the micro-batch's order: the loss,
with its ratios of whole sequences, is computed from them as on one rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seamlessflow_workers.train.sequence_parallel.attention import SequencePass
from seamlessflow_workers.train.sequence_parallel.collectives import ALONE, SequenceGroup
from seamlessflow_workers.train.sequence_parallel.slices import TokenSlice, token_slice
from seamlessflow_workers.train.step.micro_batches import MicroBatch, own_micro_batches
from seamlessflow_workers.train.step.sampled import Masks
from seamlessflow_workers.train.trees.blocks import TreeBlocks


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """`group` are the ranks that compute the same micro-batches as this one."""

    device: torch.device
    group: SequenceGroup = ALONE

    def local(self, micro_batches: Sequence[MicroBatch]) -> list[tuple[MicroBatch, bool]]:
        """Return the micro-batches of this rank's group, and whether this rank counts them in the metrics.

        All ranks get equally many, since they gather partitioned weights together.
        """
        rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        size = self.group.size
        shared = own_micro_batches(micro_batches, rank=rank // size, num_ranks=num_ranks // size)
        return [(micro_batch, counts and self.group.rank == 0) for micro_batch, counts in shared]

    def __call__(
        self, policy: nn.Module, micro_batch: MicroBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return (logprobs [N], entropies [N]). All ranks of the group must call it, and then compute alike."""
        tree = None if micro_batch.tree is None else TreeBlocks(micro_batch.tree)
        if self.group.size == 1:
            arrays = (micro_batch.token_ids, micro_batch.rows, micro_batch.columns, micro_batch.targets)
            token_ids, rows, columns, targets = (self.tensor(array) for array in arrays)
            logprobs, entropies = policy(
                token_ids, rows, columns, targets, temperature, tree, self._masks(micro_batch)
            )
            return logprobs, entropies
        return self._together(policy, micro_batch, temperature, tree)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _together(
        self, policy: nn.Module, micro_batch: MicroBatch, temperature: float, tree: TreeBlocks | None
    ) -> tuple[Tensor, Tensor]:
        own = self._slice(micro_batch)
        predictions = own.deal.predictions
        arrays = (
            own.token_ids,
            micro_batch.rows[own.predictions],
            own.columns,
            micro_batch.targets[predictions],
        )
        token_ids, rows, columns, targets = (self.tensor(array) for array in arrays)
        computed = policy(
            token_ids,
            rows,
            columns,
            targets,
            temperature,
            tree,
            self._masks(micro_batch, predictions),
            SequencePass(self.group, micro_batch.num_row_tokens, self.tensor(own.positions), own.deal),
        )
        joined = self.group.join(torch.stack(computed), self.tensor(predictions), len(micro_batch.targets))
        logprobs, entropies = joined
        return logprobs, entropies

    def _slice(self, micro_batch: MicroBatch) -> TokenSlice:
        return token_slice(
            micro_batch.token_ids,
            micro_batch.columns,
            rank=self.group.rank,
            num_ranks=self.group.size,
            positions=None if micro_batch.tree is None else micro_batch.tree.positions,
        )

    def _masks(self, micro_batch: MicroBatch, predictions: NDArray[np.int64] | None = None) -> Masks | None:
        """Return the masks of all predictions, or of some."""
        masks = micro_batch.masks
        if masks is not None and predictions is not None:
            masks = masks.of(predictions)
        return None if masks is None else Masks(self.tensor(masks.rows), self.tensor(masks.table))
