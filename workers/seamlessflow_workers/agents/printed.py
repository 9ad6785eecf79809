"""Hands what an environment prints in this process to the log of its session as well.

It replaces `sys.stdout` and `sys.stderr`. Text that is written while a session runs goes to both; all other
text only to the stream that it replaces.
"""

import io
from typing import TextIO

from seamlessflow.core.environment.output import output_now


class PrintedBySessions(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if (output := output_now()) is not None:
            output.write(text.encode("utf-8", "replace"))
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> object:
        """The bytes below, which go past the logs of sessions."""
        return self._stream.buffer
