"""Writes one rank's file of a checkpoint while the next step runs.

Takes the state as views, copies it to the host's memory and writes the copy in a thread of its own; without memory for
a copy it writes at once. Invariants: the written state is that of the moment of `begin`; at most one copy exists.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from seamlessflow_workers.train.state.files import RankState
from seamlessflow_workers.train.state.host_memory import available_bytes

logger = logging.getLogger(__name__)

_SPARE = 2  # of the memory that is available, copies take at most one half


class StateWriter:
    """One per process. Call it from the thread that computes."""

    def __init__(self, *, num_sharing: int, available: Callable[[], int] = available_bytes) -> None:
        """`num_sharing`: processes of this host that copy their states at the same moment."""
        self._num_sharing = num_sharing
        self._available = available
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def begin(self, state: RankState, path: Path) -> None:
        """Begin to write; return once the state may change. Raises OSError of a write that cannot wait."""
        assert self._writing is None, "the previous state must be finished first"
        needed = state.num_bytes * self._num_sharing * _SPARE
        if needed > self._available():
            logger.info(
                "there is no memory for a copy of the state (%.1f GB): writing it at once", needed / 1e9
            )
            state.write(path)
            return
        self._writing = self._thread.submit(state.copied().write, path)

    def is_done(self) -> bool:
        return self._writing is None or self._writing.done()

    def finish(self) -> None:
        """Return once the file is durable. Raises the errors of the writing."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
