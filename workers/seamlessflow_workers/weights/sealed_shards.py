"""Shards of a version, with the bytes of their files, in memory that no process can change any more.

Bytes enter while their file is written, or as they are received. File descriptors leave, which can be passed to other
processes of the host. The kernel seals a complete shard: a process that maps it sees the same bytes for as long as it
keeps the map, whatever happens to the process that made it. The memory is freed with its last user.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

_PIECE_BYTES = 16 * 1024**2
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class SealedShards:
    """Owns one descriptor per shard; may be used from several threads once its shards are complete."""

    def __init__(self, descriptors: Mapping[str, int] | None = None) -> None:
        """Own the `descriptors` of complete shards."""
        self._descriptors = dict(descriptors or {})

    def tee(self, name: str, chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """Pass on the chunks of a shard and keep a copy, which is complete after the last chunk."""
        descriptor = self._create(name)
        for chunk in chunks:
            rest = memoryview(chunk).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            yield chunk
            del chunk, rest  # frees their memory before the next one is made
        self.seal(name)

    def take(self, name: str, path: Path) -> None:
        """Keep a copy of a shard that another process has written to a file."""
        with path.open("rb") as file:
            for _ in self.tee(name, iter(lambda: file.read(_PIECE_BYTES), b"")):
                continue

    def reserve(self, name: str, num_bytes: int) -> mmap.mmap:
        """Return a map to receive a shard into; close it before `seal`."""
        descriptor = self._create(name)
        os.ftruncate(descriptor, num_bytes)
        return mmap.mmap(descriptor, num_bytes)

    def seal(self, name: str) -> None:
        fcntl.fcntl(self._descriptors[name], fcntl.F_ADD_SEALS, _SEALS)

    def sizes(self) -> dict[str, int]:
        """Return the size of each shard in bytes, in the order of names."""
        return {name: os.fstat(self._descriptors[name]).st_size for name in sorted(self._descriptors)}

    def descriptor(self, name: str) -> int:
        """Return the descriptor of a shard, which this object still owns."""
        return self._descriptors[name]

    def map(self, name: str) -> mmap.mmap:
        """Map the bytes of a complete shard, private to the caller."""
        return mmap.mmap(self._descriptors[name], 0, access=mmap.ACCESS_COPY)

    def path(self, name: str) -> str:
        """Return a path by which any process of this user can open the shard while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptors[name]}"

    def copy(self) -> "SealedShards":
        """Return the same memory under new descriptors; all shards must be complete."""
        return SealedShards({name: os.dup(descriptor) for name, descriptor in self._descriptors.items()})

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self, name: str) -> int:
        descriptor = os.memfd_create(f"seamlessflow-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._descriptors[name] = descriptor
        return descriptor


def is_sealed(descriptor: int) -> bool:
    """Whether a descriptor from another process is a sealed shard, whose bytes cannot change."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # not memory of this kind
        return False
