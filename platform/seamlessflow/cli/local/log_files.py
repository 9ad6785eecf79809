"""Files that keep what child processes print.

Takes chunks of bytes from a pipe; writes `<name>.log` and a few older generations, of which `<name>.log.1` is the
newest. Invariants: a log never takes more than `MAX_BYTES * (NUM_GENERATIONS + 1)` of disk. A full disk costs lines but
never blocks the process that prints them; the log reports how many bytes it lost once there is space again.
"""

import errno
import os
from io import FileIO
from pathlib import Path

MAX_BYTES = 8 * 1024 * 1024
NUM_GENERATIONS = 3
TAIL_BYTES = 4000


class RotatedLog:
    """An append-only file that is rotated when it is full."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: FileIO = path.open("ab", buffering=0)
        self._size = path.stat().st_size
        self._num_lost, self._lost_by = 0, ""

    def write(self, chunk: bytes) -> None:
        try:
            if self._num_lost:
                self._append(f"\n[{self._num_lost} bytes of this log were lost: {self._lost_by}]\n".encode())
                self._num_lost = 0
            self._append(chunk)
        except OSError as error:
            self._num_lost, self._lost_by = self._num_lost + len(chunk), error.strerror or str(error)

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        """Append all of it. Raises OSError if not all of it was written, as on a nearly full disk."""
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        num_taken = self._file.write(data)
        self._size += num_taken
        if num_taken < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _rotate(self) -> None:
        """Start a new file. If none can be created, the full one stays in use."""
        fresh = self.path.with_name(f"{self.path.name}.new").open("ab", buffering=0)
        self._file.close()
        for generation in range(NUM_GENERATIONS, 0, -1):
            source = self.path if generation == 1 else _generation(self.path, generation - 1)
            if source.exists():
                source.replace(_generation(self.path, generation))
        Path(fresh.name).replace(self.path)
        self._file = fresh
        self._size = 0


def _generation(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def log_tail(path: Path, *, num_bytes: int = TAIL_BYTES) -> str:
    """Return the last lines of a log, for an error message."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - num_bytes))
        return file.read().decode(errors="replace").strip()
