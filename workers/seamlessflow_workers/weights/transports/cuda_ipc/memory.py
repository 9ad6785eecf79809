"""Memory that a trainer fills and an engine maps: a GPU's by CUDA IPC, or the host's; and what they say about it.

The process that makes a bucket owns it; a process that maps it keeps it until its tensor is gone. A GPU's memory cannot
be sealed: a process that maps it could write to it, and reads whatever the owner writes next. So nothing is checked
there, only in the engine's own copy.
The host's memory implements the same protocol without a GPU, so tests can run every step except CUDA's calls.
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
    """GPU memory as CUDA names it to other processes: exactly what torch exports of a storage."""

    memory: bytes
    num_bytes: int
    offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    must_wait: bool


class HostHandle(msgspec.Struct, frozen=True, tag="host"):
    """Host memory, as a path that a process of the same user can map."""

    path: str
    num_bytes: int


Handle = CudaHandle | HostHandle


class Buckets(msgspec.Struct, frozen=True, tag="buckets"):
    """Trainer → engine: the piece of memory through which all shards come, bucket by bucket."""

    handle: CudaHandle | HostHandle
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, in this order; each begins a new bucket


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    """Trainer → engine: the bucket is filled."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Engine → trainer: the bucket may be overwritten. After the last one the engine unmaps it and hangs up."""


class Bucket(Protocol):
    @property
    def tensor(self) -> Tensor:
        """The memory, uint8 [num_bytes]."""
        ...

    @property
    def handle(self) -> Handle: ...

    def close(self) -> None:
        """Give up ownership; a process that maps the bucket can still read it."""
        ...


class BucketMemory(Protocol):
    @property
    def name(self) -> str:
        """A name that is the same in every process that computes in this memory, and in no other."""
        ...

    @property
    def device(self) -> torch.device: ...

    def make(self, num_bytes: int) -> Bucket: ...

    def map(self, handle: Handle) -> Tensor:
        """Map a bucket as uint8. Raises TransferFailed for a handle of other memory."""
        ...

    def working(self) -> contextlib.AbstractContextManager[None]:
        """Copies made within are visible to every process afterwards, and do not wait for other computation."""
        ...


def memory_of(device: torch.device) -> BucketMemory:
    return CudaMemory(device) if device.type == "cuda" else HostMemory()


class CudaMemory:
    """Memory of one GPU, for processes that compute on the same one: nothing is copied between GPUs."""

    def __init__(self, device: torch.device) -> None:
        self.device = torch.empty(0, device=device).device  # with its index
        self.name = f"card {torch.cuda.get_device_properties(self.device).uuid}"
        self._stream = torch.cuda.Stream(self.device)

    def make(self, num_bytes: int) -> "_CudaBucket":
        return _CudaBucket(torch.empty(num_bytes, dtype=torch.uint8, device=self.device))

    def map(self, handle: Handle) -> Tensor:
        if not isinstance(handle, CudaHandle):
            raise TransferFailed(f"the trainer shared memory that is not of {self.name}")
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
        # First finish what this thread has queued: it may still use the memory that is written now.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()


class _CudaBucket:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        # torch counts the processes that map a storage; one export is for one engine.
        _device, memory, num_bytes, offset, counter, counter_offset, event, must_wait = (
            tensor.untyped_storage()._share_cuda_()
        )
        self.handle = CudaHandle(memory, num_bytes, offset, counter, counter_offset, event, must_wait)

    def close(self) -> None:
        """Free the memory at once if the engine has unmapped it, else when it does.

        If the engine was killed, the memory is freed when this process ends.
        """
        self.tensor = torch.empty(0, dtype=torch.uint8)
        torch.cuda.ipc_collect()


class HostMemory:
    name = "the host"
    device = torch.device("cpu")

    def make(self, num_bytes: int) -> Bucket:
        return _HostBucket(num_bytes)

    def map(self, handle: Handle) -> Tensor:
        if not isinstance(handle, HostHandle):
            raise TransferFailed("the trainer shared memory that is not the host's")
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
    """Map the descriptor and close it: the tensor keeps the map, which no longer needs it."""
    try:
        mapped: Any = mmap.mmap(descriptor, num_bytes)
    finally:
        os.close(descriptor)
    return torch.frombuffer(mapped, dtype=torch.uint8)
