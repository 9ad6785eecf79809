"""What a session prints: the runner keeps it as the session's log, with its beginning, its end and without its key.

An environment whose agent prints elsewhere hands it on:

    write = output_stream()
    write(chunk)

The runner listens; outside a session nothing is kept. What an environment itself prints is handed on by the runner.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

Write = Callable[[bytes], None]
HIDDEN_KEY = b"[key of the session]"


class SessionOutput(Protocol):
    """The log of a running session."""

    def write(self, data: bytes) -> None:
        """Add the environment's own output."""
        ...

    def stream(self) -> Write:
        """Open another stream, whose lines do not mix with those of the others."""
        ...


_output: ContextVar[SessionOutput | None] = ContextVar("session_output", default=None)


def output_listen(output: SessionOutput | None) -> None:
    """Make what this task, and those that it starts, print the output of a session."""
    _output.set(output)


def output_now() -> SessionOutput | None:
    return _output.get()


def output_stream() -> Write:
    """Return a function that adds to the log of the running session."""
    output = _output.get()
    return _discard if output is None else output.stream()


def key_hide(data: bytes, key: str) -> bytes:
    """Replace the key of a session wherever it occurs as a whole.

    >>> key_hide(b"OPENAI_API_KEY=sfs_1_2", "sfs_1_2")
    b'OPENAI_API_KEY=[key of the session]'
    """
    return data.replace(key.encode(), HIDDEN_KEY) if key else data


def _discard(data: bytes) -> None:
    pass
