"""The group of ranks that compute sequences together, and its collectives with their gradients.

Every rank of a group calls the same collectives in the same order, in the forward and in the backward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Neighbouring ranks of one machine, one of which is this process."""

    size: int
    rank: int  # within the group
    processes: distributed.ProcessGroup | None = None  # None: this process alone

    def exchange(self, chunks: Tensor) -> Tensor:
        """Return [size, …]: chunk number `rank` of each rank's `chunks` [size, …], in the order of the ranks."""
        exchanged: Tensor = _Exchange.apply(chunks, self)
        return exchanged

    def deal(self, rows: Tensor, num_sent: Sequence[int], num_received: Sequence[int]) -> Tensor:
        """Return [m, C]: the next `num_received[r]` of rank r's `rows` [n, C], for each r; all send as many to each."""
        dealt: Tensor = _Deal.apply(rows, num_sent, num_received, self)
        return dealt

    def join(self, own: Tensor, columns: Tensor, num_columns: int) -> Tensor:
        """Return [K, num_places] on every rank, to which each contributes `own` [K, n] at its `columns` [n].

        All ranks must compute the same from the result, and their result counts once: each gets the gradient of its
        own columns.
        """
        joined: Tensor = _Join.apply(own, columns, num_columns, self)
        return joined

    def largest(self, value: float, device: torch.device) -> float:
        """Return the largest value of all ranks; infinity if one of them is no number."""
        number = torch.tensor(value, dtype=torch.float64, device=device).nan_to_num(nan=torch.inf)
        distributed.all_reduce(number, op=distributed.ReduceOp.MAX, group=self.processes)
        return float(number)


ALONE = SequenceGroup(size=1, rank=0)


def sequence_group(size: int) -> SequenceGroup:
    """Return the group of this rank. All ranks of the process group must call it; `size` divides their number."""
    if size == 1:
        return ALONE
    rank, num_ranks = distributed.get_rank(), distributed.get_world_size()
    backend = (
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else None
    )  # a model is loaded and probed on the host
    own = None
    for first in range(0, num_ranks, size):  # every rank helps to make every group
        ranks = range(first, first + size)
        made = distributed.new_group(list(ranks), backend=backend)
        own = made if rank in ranks else own
    return SequenceGroup(size, rank % size, own)


class _Exchange(torch.autograd.Function):
    """An exchange is a permutation of numbers, and its transpose is the same exchange."""

    @staticmethod
    def forward(ctx: Any, chunks: Tensor, group: SequenceGroup) -> Tensor:
        ctx.group = group
        return _exchanged(chunks, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _exchanged(gradient.contiguous(), ctx.group), None


def _exchanged(chunks: Tensor, group: SequenceGroup) -> Tensor:
    received = torch.empty_like(chunks)
    distributed.all_to_all_single(received, chunks, group=group.processes)
    return received


class _Deal(torch.autograd.Function):
    """Rows are moved, so their gradients are moved back."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, num_sent: Sequence[int], num_received: Sequence[int], group: SequenceGroup
    ) -> Tensor:
        ctx.back = (num_received, num_sent, group)
        return _dealt(rows, num_sent, num_received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _dealt(gradient.contiguous(), *ctx.back), None, None, None


def _dealt(
    rows: Tensor, num_sent: Sequence[int], num_received: Sequence[int], group: SequenceGroup
) -> Tensor:
    received = rows.new_empty(sum(num_received), rows.shape[1])
    distributed.all_to_all_single(received, rows, list(num_received), list(num_sent), group=group.processes)
    return received


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, columns: Tensor, num_columns: int, group: SequenceGroup) -> Tensor:
        ctx.save_for_backward(columns)
        joined = own.new_zeros(own.shape[0], num_columns)
        joined[:, columns] = own
        distributed.all_reduce(joined, group=group.processes)  # exact: all others have 0 there
        return joined

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (columns,) = ctx.saved_tensors
        return gradient[:, columns], None, None, None
