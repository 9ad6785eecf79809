"""A group for one broadcast of weights: the trainer is rank 0, each engine that asked for them is another rank.

The backend is NCCL between GPUs and gloo between processors, with the same calls. The group does not belong to a
default process group and lives for one transfer only, so it never contains an engine that has left. A member that dies
or hangs ends it for all within the timeout; the remaining ones form another. All members with a seat are running and
have just asked, so they meet at once or not at all; the time limit for meeting is therefore shorter than for the bytes.
"""

import contextlib
import mmap
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch._C._distributed_c10d import BroadcastOptions, PrefixStore, Store, TCPStore

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards

MEETING_S = 10.0  # for all members to connect to one another
_POLL_S = 0.0005
_TRAINER = 0


class Seat(msgspec.Struct, frozen=True, tag="seat"):
    """Trainer → engine: its rank in a group that exists for one transfer, and the shards that are broadcast in it."""

    rank: int  # 0 is the trainer
    num_ranks: int
    store_port: int
    group: str
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, broadcast in this order in buckets of at most `bucket_bytes`


class BroadcastGroup:
    def __init__(
        self,
        store: Store,
        *,
        name: str,
        rank: int,
        num_ranks: int,
        backend: WeightTransport,
        host: str,
        timeout_s: float,
    ) -> None:
        """Meet the other ranks in `store` under `name`; `host` is this rank's own address. Raises TransferFailed."""
        self._timeout = timedelta(seconds=timeout_s)
        self._is_cuda = backend is WeightTransport.NCCL
        self.is_sender = rank == _TRAINER
        try:
            own = PrefixStore(name, store)
            # NCCL's ranks meet in their first broadcast, gloo's here.
            meeting = self._timeout if self._is_cuda else timedelta(seconds=min(MEETING_S, timeout_s))
            own.set_timeout(meeting)
            make = _nccl_group if self._is_cuda else _gloo_group
            self._group = make(own, rank, num_ranks, host, meeting)
        except (RuntimeError, ValueError) as error:
            raise TransferFailed(
                f"the group of {num_ranks} did not come together: {_first(error)}"
            ) from error

    def broadcast(self, shard: mmap.mmap, *, bucket_bytes: int, on_bucket: Callable[[], None]) -> None:
        """Copy the trainer's bytes to all other ranks, bucket by bucket. Raises TransferFailed."""
        bytes_here = torch.frombuffer(shard, dtype=torch.uint8)
        for bucket in bytes_here.split(bucket_bytes):
            on_bucket()
            try:
                self._broadcast_bucket(bucket)
            except RuntimeError as error:
                raise TransferFailed(f"the broadcast failed: {_first(error)}") from error

    def _broadcast_bucket(self, bucket: Tensor) -> None:
        options = BroadcastOptions()
        options.rootRank = _TRAINER
        options.timeout = self._timeout
        if not self._is_cuda:
            self._group.broadcast([bucket], options).wait(self._timeout)
            return
        on_device = (
            bucket.to("cuda", copy=True) if self.is_sender else torch.empty_like(bucket, device="cuda")
        )
        work = self._group.broadcast([on_device], options)
        give_up_at_s = time.monotonic() + self._timeout.total_seconds()
        while not work.is_completed():
            if time.monotonic() > give_up_at_s:
                raise RuntimeError(f"it did not end within {self._timeout.total_seconds():.0f} s")
            time.sleep(_POLL_S)
        work.wait()  # raises if the broadcast failed
        torch.cuda.synchronize()
        if not self.is_sender:
            bucket.copy_(on_device)

    def close(self) -> None:
        """End the group in any state: a transfer under way ends here, and soon after at the other ranks."""
        self._group.abort()
        self._group = None  # gloo closes connections with the last reference, which a traceback must not keep


def store_serve(listening: socket.socket, *, host: str) -> TCPStore:
    """Start the store in which a trainer's groups meet. It takes over the bound socket.

    `host` is the address at which the trainer reaches itself.
    """
    return TCPStore(
        host,
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def _gloo_group(store: Store, rank: int, num_ranks: int, host: str, timeout: timedelta) -> Any:
    kind: Any = torch.distributed.ProcessGroupGloo
    options = kind._Options()
    options._timeout = timeout
    options._devices = [kind.create_device(hostname=host)]
    return kind(store, rank, num_ranks, options)


def _nccl_group(store: Store, rank: int, num_ranks: int, _host: str, timeout: timedelta) -> Any:
    kind: Any = torch.distributed.ProcessGroupNCCL
    options = kind.Options()
    options._timeout = timeout
    return kind(store, rank, num_ranks, options)


def shards_send(
    group: BroadcastGroup, shards: SealedShards, *, bucket_bytes: int, on_bucket: Callable[[], None]
) -> None:
    """Send the shards. Raises TransferFailed."""
    for name in shards.sizes():
        shard = shards.map(name)
        group.broadcast(shard, bucket_bytes=bucket_bytes, on_bucket=on_bucket)
        shard.close()


def shards_receive(group: BroadcastGroup, sizes: Mapping[str, int], *, bucket_bytes: int) -> SealedShards:
    """Receive the shards in the sender's order. Raises TransferFailed, after freeing what came."""
    shards = SealedShards()
    try:
        for name, num_bytes in sizes.items():
            shard = shards.reserve(name, num_bytes)
            group.broadcast(shard, bucket_bytes=bucket_bytes, on_bucket=lambda: None)
            shard.close()  # not after a failure: tensors in its traceback still refer to the map
            shards.seal(name)
    except BaseException:
        shards.close()
        raise
    return shards


def seat_take(
    seat: Seat, *, trainer: str, own: str, backend: WeightTransport, timeout_s: float
) -> SealedShards:
    """Receive in the group that the trainer named; `trainer` and `own` are the hosts of the two.

    Raises TransferFailed, and OSError if the trainer left after it gave the seat.
    """
    meeting_s = min(MEETING_S, timeout_s)
    # Checked first, because the store's client retries a closed port for twice its timeout.
    socket.create_connection((trainer, seat.store_port), timeout=meeting_s).close()
    try:
        store = TCPStore(trainer, seat.store_port, is_master=False, timeout=timedelta(seconds=meeting_s))
    except RuntimeError as error:
        raise TransferFailed(f"the trainer's store cannot be reached: {_first(error)}") from error
    group = BroadcastGroup(
        store,
        name=seat.group,
        rank=seat.rank,
        num_ranks=seat.num_ranks,
        backend=backend,
        host=own,
        timeout_s=timeout_s,
    )
    with contextlib.closing(group):
        return shards_receive(group, seat.shards, bucket_bytes=seat.bucket_bytes)


def _first(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
