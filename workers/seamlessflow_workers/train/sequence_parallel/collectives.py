"""The group of ranks that share sequences, and its collectives with their gradients.

Every rank of a group calls the same collectives in the same order, in the forward and in the backward pass.
"""

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

    def exchange(self, parts: Tensor) -> Tensor:
        """Return [size, …]: part number `rank` of each rank's `parts` [size, …], in the order of the ranks."""
        exchanged: Tensor = _Exchange.apply(parts, self)
        return exchanged

    def join(self, own: Tensor, places: Tensor, num_places: int) -> Tensor:
        """Return [K, num_places] on every rank, to which each contributes `own` [K, n] at its `places` [n].

        All ranks must compute the same from the result, and what they compute counts once: each gets the gradient of
        its own part.
        """
        joined: Tensor = _Join.apply(own, places, num_places, self)
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
    for first in range(0, num_ranks, size):  # every rank takes part in making every group
        ranks = range(first, first + size)
        made = distributed.new_group(list(ranks), backend=backend)
        own = made if rank in ranks else own
    return SequenceGroup(size, rank % size, own)


class _Exchange(torch.autograd.Function):
    """An exchange is a permutation of numbers, and its transpose is the same exchange."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: SequenceGroup) -> Tensor:
        ctx.group = group
        return _exchanged(parts, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _exchanged(gradient.contiguous(), ctx.group), None


def _exchanged(parts: Tensor, group: SequenceGroup) -> Tensor:
    received = torch.empty_like(parts)
    distributed.all_to_all_single(received, parts, group=group.processes)
    return received


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, places: Tensor, num_places: int, group: SequenceGroup) -> Tensor:
        ctx.save_for_backward(places)
        joined = own.new_zeros(own.shape[0], num_places)
        joined[:, places] = own
        distributed.all_reduce(joined, group=group.processes)  # exact: all others have 0 there
        return joined

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        return gradient[:, places], None, None, None
