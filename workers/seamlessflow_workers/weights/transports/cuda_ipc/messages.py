"""What trainer and engine say to each other while shards pass through memory that both share."""

import msgspec


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


class Buckets(msgspec.Struct, frozen=True, tag="buckets"):
    """The one piece of memory through which all shards come, filled and emptied bucket by bucket."""

    handle: CudaHandle | HostHandle
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, in this order; each begins a bucket


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    """Trainer → engine: the next bucket is there."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Engine → trainer: it may be overwritten. After the last one the engine lets go of the memory and hangs up."""
