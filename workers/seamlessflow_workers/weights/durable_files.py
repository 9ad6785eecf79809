"""Files that survive a crash: takes chunks of bytes, writes a synced file and returns its digest.

Everything under the artifact root is first written beside its path, synced and renamed. A failure is described in one
sentence for people.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from seamlessflow_workers.weights.manifest import ShardEntry

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def write_durably(path: Path, chunks: Iterable[bytes | memoryview]) -> ShardEntry:
    """Write a new file and fsync it; return its digest and size."""
    digest = hashlib.sha256()

    def digested() -> Iterator[bytes | memoryview]:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
            del chunk  # frees its memory before the next one is made

    num_bytes = file_write(path, digested())
    return ShardEntry(sha256=digest.hexdigest(), num_bytes=num_bytes)


def file_write(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Write a new file and fsync it; return its size."""
    num_bytes = 0
    with path.open("xb") as file:
        for chunk in chunks:
            num_bytes += file.write(chunk)
            del chunk
        file.flush()
        os.fsync(file.fileno())
    return num_bytes


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_failure(subject: str, folder: Path, error: OSError) -> str:
    """Describe a failed write under the artifact root in one sentence for people."""
    if error.errno in _NO_SPACE:
        return f"cannot write {subject}: no space left in {folder}; free space or change ARTIFACT_ROOT"
    return f"cannot write {subject} in {folder}: {error.strerror or error}"
