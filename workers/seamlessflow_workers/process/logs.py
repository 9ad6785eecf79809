"""Writes the output of one child to rotated files, one per phase, readable by offset.

It takes bytes as the child writes them and writes `<role>-<phase>.log`. Output before the first phase and between
phases goes to `<role>-<job>.log` and is repeated at the start of the next phase's log. The last line is kept to explain
failures. Invariant: an offset counts the bytes of one phase's log from its beginning, across rotations; each log takes
at most two files of `max_file_bytes` and its first `head_bytes`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import IO
from uuid import UUID

MAX_FILE_BYTES = 8 << 20
HEAD_BYTES = 1 << 20
PRELUDE_BYTES = 65_536
LAST_LINE_CHARACTERS = 300


class RotatedFile:
    """An append-only log that keeps its head and the newest one to two files of its content."""

    def __init__(
        self, path: Path, *, max_file_bytes: int = MAX_FILE_BYTES, head_bytes: int = HEAD_BYTES
    ) -> None:
        self.path = path
        self._max_file_bytes = max_file_bytes
        self._max_head_bytes = min(head_bytes, max_file_bytes)
        self._base = 0  # offset of the current file's first byte
        self._previous_base = 0
        self._head_bytes = 0  # kept in a separate file after the first rotation
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._size_bytes = self._file.tell()

    @property
    def end(self) -> int:
        return self._base + self._size_bytes

    def write(self, chunk: bytes) -> None:
        if self._size_bytes and self._size_bytes + len(chunk) > self._max_file_bytes:
            self._rotate()
        self._file.write(chunk)
        self._size_bytes += len(chunk)

    def read(self, offset: int, num_bytes: int) -> tuple[int, bytes]:
        """Return where the bytes begin, and bytes from `offset` or from the next byte that is kept."""
        if offset >= self._base:
            return _read_at(self.path, offset, self._base, num_bytes)
        if offset < min(self._head_bytes, self._previous_base):
            return _read_at(self._head_path, offset, 0, num_bytes)
        start = max(offset, self._previous_base)
        return _read_at(self._previous_path, start, self._previous_base, min(num_bytes, self._base - start))

    def close(self) -> None:
        self._file.close()

    @property
    def _previous_path(self) -> Path:
        return self.path.with_name(self.path.name + ".1")

    @property
    def _head_path(self) -> Path:
        return self.path.with_name(self.path.name + ".head")

    def _rotate(self) -> None:
        self._file.close()
        if self._base == 0:
            self._keep_head()
        self.path.replace(self._previous_path)
        self._previous_base, self._base = self._base, self.end
        self._file = self.path.open("ab", buffering=0)
        self._size_bytes = 0

    def _keep_head(self) -> None:
        with self.path.open("rb") as file:
            head = file.read(self._max_head_bytes)
        self._head_path.write_bytes(head)
        self._head_bytes = len(head)


class OutputLog:
    """Writes one child's output to its job's file, or to the file of the phase to which it is bound."""

    def __init__(
        self,
        folder: Path,
        *,
        role: str,
        job_id: UUID | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        self._last = LastLine()
        self._folder = folder
        self._role = role
        self._on_written = on_written
        self._unphased = RotatedFile(folder / (f"{role}-{job_id}.log" if job_id else f"{role}.log"))
        self._prelude = bytearray()
        self._phase_file: RotatedFile | None = None

    @property
    def last_line(self) -> str:
        return self._last.text

    def bind(self, phase_id: UUID) -> RotatedFile:
        """Give this phase the output from now on, and the output that no phase owned before."""
        self.unbind()
        self._phase_file = RotatedFile(self._folder / f"{self._role}-{phase_id}.log")
        if self._prelude:
            self._phase_file.write(bytes(self._prelude))
            self._prelude.clear()
        return self._phase_file

    def unbind(self) -> None:
        if self._phase_file is not None:
            self._phase_file.close()
            self._phase_file = None

    def write(self, chunk: bytes) -> None:
        self._last.note(chunk)
        if self._phase_file is None:
            self._unphased.write(chunk)
            self._prelude += chunk
            del self._prelude[:-PRELUDE_BYTES]
            return
        self._phase_file.write(chunk)
        if self._on_written is not None:
            self._on_written()

    def close(self) -> None:
        self.unbind()
        self._unphased.close()


class SharedLog:
    """The output of one of several processes that write to one log; its lines begin with the process's name."""

    def __init__(self, log: OutputLog, *, name: str) -> None:
        self._last = LastLine()
        self._log = log
        self._prefix = f"[{name}] ".encode()
        self._is_line_open = False

    @property
    def last_line(self) -> str:
        return self._last.text

    def write(self, chunk: bytes) -> None:
        self._last.note(chunk)
        lines = chunk.splitlines(keepends=True)
        first = b"" if self._is_line_open else self._prefix
        self._log.write(first + self._prefix.join(lines))
        self._is_line_open = not chunk.endswith(b"\n")


class LastLine:
    """The last line of some output, which may come in chunks, as the last line of a traceback does."""

    def __init__(self) -> None:
        self.text = ""
        self._unended = b""

    def note(self, chunk: bytes) -> None:
        recent = (self._unended + chunk)[-4096:]
        self._unended = recent[recent.rfind(b"\n") + 1 :]
        lines = [line for line in recent.splitlines() if line.strip()]
        if lines:
            self.text = lines[-1].decode(errors="replace").strip()[:LAST_LINE_CHARACTERS]


def _read_at(path: Path, offset: int, base: int, num_bytes: int) -> tuple[int, bytes]:
    with path.open("rb") as file:
        file.seek(offset - base)
        return offset, file.read(num_bytes)
