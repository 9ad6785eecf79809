"""Writes the shards of a version on all ranks, and gives each rank the digests of all of them.

Takes an order and a way to fetch tensors. Each rank writes its shards (`weights.transports.file.shards`) and checks
that their values are finite; then the ranks add up a table in which each has filled the rows of its own. Invariant:
either all ranks return the same entries, or all raise, so that a full disk is reported as such whichever rank met it.
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout, WeightsNotFinite
from seamlessflow_workers.weights.transports.file.shards import Fetch, ShardOrder, shards_write

_DIGEST_WORDS = 4  # of 8 bytes
_NOT_FINITE = 1 << 20  # beyond every errno
_FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16}


def shards_of_all_ranks(
    order: ShardOrder,
    layouts: Mapping[str, TensorLayout],
    fetch: Fetch,
    *,
    sealed: SealedShards | None,
    gathers_together: bool,
    device: torch.device,
) -> dict[str, ShardEntry]:
    """Write this rank's shards; return the entries of all ranks. All ranks call it together.

    Raises OSError or WeightsNotFinite.
    """
    flawed: list[str] = []
    own: dict[str, ShardEntry] = {}
    failure: OSError | WeightsNotFinite | None = None

    def checked(names: Sequence[str], is_own: bool) -> Mapping[str, RawTensor]:
        tensors = fetch(names, is_own)
        flawed.extend(name for name, tensor in tensors.items() if not _is_finite(tensor))
        return tensors  # flawed ones as well: other ranks may count on this one to gather the next

    try:
        own = shards_write(
            order,
            layouts,
            checked,
            sealed=sealed,
            rank=torch.distributed.get_rank(),
            num_ranks=torch.distributed.get_world_size(),
            gathers_together=gathers_together,
        )
    except OSError as error:
        failure = error
    if flawed:
        failure = WeightsNotFinite(f"{flawed[0]} has NaN or infinite values")
    _raise_together(failure, device)
    return _entries_of_all(order, own, device)


def _is_finite(tensor: RawTensor) -> bool:
    """Whether all values are finite. If their sum is, so is each: nothing brings back an infinity or NaN."""
    values = torch.frombuffer(tensor.data, dtype=_FLOATS[tensor.dtype])
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def _raise_together(failure: OSError | WeightsNotFinite | None, device: torch.device) -> None:
    own = 0
    if failure is not None:
        own = (failure.errno or errno.EIO) if isinstance(failure, OSError) else _NOT_FINITE
    number = torch.tensor(own, device=device)
    torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MAX)
    if failure is not None:
        raise failure
    if int(number) == _NOT_FINITE:
        raise WeightsNotFinite("a tensor that another rank writes has NaN or infinite values")
    if int(number):
        raise OSError(int(number), "another rank could not write its shards")


def _entries_of_all(
    order: ShardOrder, own: Mapping[str, ShardEntry], device: torch.device
) -> dict[str, ShardEntry]:
    table = torch.zeros(len(order.shards), _DIGEST_WORDS + 1, dtype=torch.int64)
    for row, name in zip(table, order.shards, strict=True):
        if name in own:
            row.copy_(_row(own[name]))
    table = table.to(device)
    torch.distributed.all_reduce(table)
    rows = zip(order.shards, table.cpu().numpy(), strict=True)
    return {name: own.get(name) or _entry(row) for name, row in rows}


def _row(entry: ShardEntry) -> torch.Tensor:
    words = np.frombuffer(bytes.fromhex(entry.sha256), dtype="<i8")
    return torch.from_numpy(np.append(words, np.int64(entry.num_bytes)))


def _entry(row: np.ndarray[Any, np.dtype[np.int64]]) -> ShardEntry:
    digest = row[:_DIGEST_WORDS].astype("<i8").tobytes().hex()
    return ShardEntry(sha256=digest, num_bytes=int(row[_DIGEST_WORDS]))
