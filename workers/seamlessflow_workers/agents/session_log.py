"""The log of one session: the head and the tail of its output, without its key.

In: bytes of any number of streams, such as a program's standard output and errors. Out: a `SessionLog`, whose `end`
counts every byte. Invariants: at most `limit_bytes` are kept; lines of different streams do not mix, unless they are
longer than MAX_LINE_BYTES; the key of the session never appears as a whole.
"""

from collections.abc import Callable
from uuid import UUID

from seamlessflow.core.environment.output import Write, key_hide
from seamlessflow.core.protocol.worker import SessionLog

MAX_LINE_BYTES = 8_192


class SessionLogBuffer:
    def __init__(self, session_id: UUID, *, key: str, limit_bytes: int) -> None:
        self.session_id = session_id
        self.end = 0
        self._key = key
        self._head, self._tail = b"", b""
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._streams: list[_Lines] = []
        self._own = self._open()

    def write(self, data: bytes) -> None:
        self._own.write(data)

    def stream(self) -> Write:
        return self._open().write

    def complete(self) -> None:
        """Keep the lines that have no end yet."""
        for stream in self._streams:
            stream.flush()

    def log(self) -> SessionLog:
        return SessionLog(session_id=self.session_id, end=self.end, head=self._head, tail=self._tail)

    @property
    def num_bytes(self) -> int:
        return len(self._head) + len(self._tail)

    def _open(self) -> "_Lines":
        stream = _Lines(self._key, self._keep)
        self._streams.append(stream)
        return stream

    def _keep(self, data: bytes) -> None:
        self.end += len(data)
        num_left = self._head_limit - len(self._head)
        self._head += data[:num_left]
        if rest := data[num_left:]:
            self._tail = (self._tail + rest)[-self._tail_limit :]


class _Lines:
    """Passes whole lines on, with the key hidden; of a very long line, all but what may begin a key."""

    def __init__(self, key: str, keep: Callable[[bytes], None]) -> None:
        self._key = key
        self._keep = keep
        self._begun = b""

    def write(self, data: bytes) -> None:
        pending = key_hide(self._begun + data, self._key)
        cut = pending.rfind(b"\n") + 1
        if len(pending) - cut > MAX_LINE_BYTES:
            cut = len(pending) - len(self._key)
        self._begun = pending[cut:]
        if cut:
            self._keep(pending[:cut])

    def flush(self) -> None:
        if self._begun:
            self._keep(self._begun)
            self._begun = b""
