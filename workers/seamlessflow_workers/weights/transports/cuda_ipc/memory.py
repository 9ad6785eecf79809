"""Memory that a trainer fills and an engine maps: of a card, by CUDA IPC, or of the host.

Whoever makes a bucket owns it; who maps it holds on until the tensor is gone. A card's memory knows no seal: who maps
it could write to it, and reads whatever the owner writes next. So nothing is proven there, only in the engine's own
copy.
The host's memory is the same contract without a card: tests run every step but CUDA's calls on it.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from seamlessflow_workers.weights.offers import TransferFailed


class CudaHandle(msgspec.Struct, frozen=True, tag="cuda"):
    """Memory of a card as CUDA names it to other processes: what torch exports of a storage, word for word."""

    memory: bytes
    num_bytes: int
    offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    must_wait: bool


class HostHandle(msgspec.Struct, frozen=True, tag="host"):
    """Memory of the host, as a path that a process of the same user can map."""

    path: str
    num_bytes: int


Handle = CudaHandle | HostHandle


class Buckets(msgspec.Struct, frozen=True, tag="buckets"):
    """The one piece of memory through which all shards come, filled and emptied bucket by bucket."""

    handle: CudaHandle | HostHandle
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, in this order; each begins a bucket


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    """Trainer → engine: the next bucket is there."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Engine → trainer: it may be overwritten. After the last one the engine lets go of the memory and hangs up."""


class Bucket(Protocol):
    @property
    def tensor(self) -> Tensor:
        """[num_bytes], uint8."""
        ...

    @property
    def handle(self) -> Handle: ...

    def close(self) -> None:
        """The owner lets go; whoever maps it still can read it."""
        ...


class BucketMemory(Protocol):
    @property
    def name(self) -> str:
        """The same in every process that computes in it, and nowhere else."""
        ...

    @property
    def device(self) -> torch.device: ...

    def make(self, num_bytes: int) -> Bucket: ...

    def map(self, handle: Handle) -> Tensor:
        """uint8. Raises TransferFailed for a handle of other memory."""
        ...

    def working(self) -> contextlib.AbstractContextManager[None]:
        """What is copied within is there for every process at its end, and waits for nobody else's computing."""
        ...


def memory_of(device: torch.device) -> BucketMemory:
    return CudaMemory(device) if device.type == "cuda" else HostMemory()


class CudaMemory:
    """Of one card. Only processes that compute on the same one take it: nothing goes from card to card."""

    def __init__(self, device: torch.device) -> None:
        self.device = torch.empty(0, device=device).device  # with its index
        self.name = f"card {torch.cuda.get_device_properties(self.device).uuid}"
        self._stream = torch.cuda.Stream(self.device)

    def make(self, num_bytes: int) -> "_CudaBucket":
        return _CudaBucket(torch.empty(num_bytes, dtype=torch.uint8, device=self.device))

    def map(self, handle: Handle) -> Tensor:
        if not isinstance(handle, CudaHandle):
            raise TransferFailed(f"the trainer handed out other memory than that of {self.name}")
        storage = torch.UntypedStorage._new_shared_cuda(
            self.device.index,
            handle.memory,
            handle.num_bytes,
            handle.offset,
            handle.counter,
            handle.counter_offset,
            handle.event,
            handle.must_wait,
        )
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        # First what this thread asked for: the memory that is written now may be in its use.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()


class _CudaBucket:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        # torch counts who maps a storage; one export is for one engine.
        _device, memory, num_bytes, offset, counter, counter_offset, event, must_wait = (
            tensor.untyped_storage()._share_cuda_()
        )
        self.handle = CudaHandle(memory, num_bytes, offset, counter, counter_offset, event, must_wait)

    def close(self) -> None:
        """Given back at once if the engine has let go, else when it does; of one that was killed, with this process."""
        self.tensor = torch.empty(0, dtype=torch.uint8)
        torch.cuda.ipc_collect()


class HostMemory:
    name = "the host"
    device = torch.device("cpu")

    def make(self, num_bytes: int) -> Bucket:
        return _HostBucket(num_bytes)

    def map(self, handle: Handle) -> Tensor:
        if not isinstance(handle, HostHandle):
            raise TransferFailed("the trainer handed out other memory than the host's")
        descriptor = os.open(handle.path, os.O_RDWR)
        return _mapped(descriptor, handle.num_bytes)

    def working(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class _HostBucket:
    def __init__(self, num_bytes: int) -> None:
        self._descriptor = os.memfd_create("seamlessflow-bucket", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, num_bytes)
        self.tensor = _mapped(os.dup(self._descriptor), num_bytes)
        self.handle = HostHandle(f"/proc/{os.getpid()}/fd/{self._descriptor}", num_bytes)

    def close(self) -> None:
        os.close(self._descriptor)
        self.tensor = torch.empty(0, dtype=torch.uint8)


def _mapped(descriptor: int, num_bytes: int) -> Tensor:
    """Closes the descriptor: the map, which the tensor holds, needs it no more."""
    try:
        mapped: Any = mmap.mmap(descriptor, num_bytes)
    finally:
        os.close(descriptor)
    return torch.frombuffer(mapped, dtype=torch.uint8)
