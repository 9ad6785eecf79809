"""Files that keep what child processes print.

Enters: chunks of bytes from a pipe. Leaves: `<name>.log` and a few older generations, `<name>.log.1` being
the newest of them.
Invariant: a log never takes more than `MAX_BYTES * (NUM_GENERATIONS + 1)` of disk.
"""

from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 8 * 1024 * 1024
NUM_GENERATIONS = 3
TAIL_BYTES = 4000


class RotatedLog:
    """An append-only file that is renamed away when it is full."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, chunk: bytes) -> None:
        if self._size and self._size + len(chunk) > self._max_bytes:
            self._rotate()
        self._file.write(chunk)
        self._size += len(chunk)

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for generation in range(NUM_GENERATIONS, 0, -1):
            source = self.path if generation == 1 else _generation(self.path, generation - 1)
            if source.exists():
                source.replace(_generation(self.path, generation))
        self._file = self.path.open("ab", buffering=0)
        self._size = 0


def _generation(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def log_tail(path: Path, *, num_bytes: int = TAIL_BYTES) -> str:
    """The last lines of a log, for an error message."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - num_bytes))
        return file.read().decode(errors="replace").strip()
