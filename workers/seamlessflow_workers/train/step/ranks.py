"""A step's micro-batches over the ranks of a process group: each rank's own share, equally many for all.

Every rank plans the whole batch, the same way, and takes its part; nothing is sent. Ranks enter collectives together,
so one that would have fewer micro-batches repeats the smallest one silently: with weights of zero it adds nothing to
the gradient and is left out of the metrics.
"""

import dataclasses
from collections.abc import Sequence

import msgspec
import torch

from seamlessflow.core.batching.packing import deal
from seamlessflow_workers.train.step.micro_batches import MicroBatch
from seamlessflow_workers.train.step.process_group import training_device
from seamlessflow_workers.train.step.statistics import StepStatistics, Totals


def own_micro_batches(
    micro_batches: Sequence[MicroBatch], *, rank: int, num_ranks: int
) -> list[tuple[MicroBatch, bool]]:
    """(micro-batch, whether it counts) of one rank; tokens by rank differ by no more than the largest one has."""
    if not micro_batches:
        return []
    sizes = [micro.token_ids.size for micro in micro_batches]
    shares = deal(sizes, num_ranks)
    smallest = min(micro_batches, key=lambda micro: micro.token_ids.size)
    num_missing = max(map(len, shares)) - len(shares[rank])
    counted = [(micro_batches[index], True) for index in shares[rank]]
    return counted + [(_silent(smallest), False)] * num_missing


def statistics_of_all_ranks(statistics: StepStatistics) -> StepStatistics:
    """Sums and maxima over the process group; every rank must call it."""
    num_ranks = torch.distributed.get_world_size()
    if num_ranks == 1:
        return statistics
    whole = StepStatistics(statistics.algorithm, has_sampler=statistics.has_sampler)
    for raw in _bytes_of_all_ranks(msgspec.msgpack.encode(statistics.totals())):
        whole.add_totals(msgspec.msgpack.decode(raw, type=Totals))
    return whole


def _bytes_of_all_ranks(raw: bytes) -> list[bytes]:
    """What each rank gave, in the order of ranks; lengths may differ."""
    num_ranks, device = torch.distributed.get_world_size(), training_device()
    own_length = torch.tensor([len(raw)], device=device)
    lengths = [torch.zeros_like(own_length) for _ in range(num_ranks)]
    torch.distributed.all_gather(lengths, own_length)
    num_padded = max(int(length) for length in lengths)
    padded = torch.frombuffer(bytearray(raw.ljust(num_padded, b"\0")), dtype=torch.uint8).to(device)
    gathered = [torch.empty_like(padded) for _ in range(num_ranks)]
    torch.distributed.all_gather(gathered, padded)
    return [
        tensor.cpu().numpy().tobytes()[: int(length)]
        for tensor, length in zip(gathered, lengths, strict=True)
    ]


def _silent(micro: MicroBatch) -> MicroBatch:
    nothing = micro.loss_weights * 0
    return dataclasses.replace(
        micro, advantages_positive=nothing, advantages_negative=nothing, loss_weights=nothing
    )
