"""How one turn waits for engines: whether it does now, for how long it may, and how long it did in all.

The pool begins and ends each wait with moments of a monotonic clock. Answers of one turn that wait at the same time
count once. Invariant: nothing here changes who is served.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


class NoEngine(Exception):
    """No engine took the turn within its patience."""


def _untold() -> None:
    """Do nothing: the client does not learn that the turn waits."""


@dataclass(slots=True)
class TurnWait:
    """`patience_s`: how long each wait may last; None: as long as it takes. `on_begin` is called when a wait begins."""

    patience_s: float | None = None
    on_begin: Callable[[], None] = field(default=_untold)
    _num_waiting: int = 0
    _since_s: float = 0.0
    _ended_s: float = 0.0  # in waits that are over
    _limits: set[asyncio.Timeout] = field(default_factory=set)  # of the waits

    @property
    def is_given_up(self) -> bool:
        return self.patience_s == 0.0

    def give_up(self) -> None:
        """Wait no longer, now and later: the client has left."""
        self.patience_s, self.on_begin = 0.0, _untold
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Limit a wait by the patience. Raises TimeoutError."""
        async with asyncio.timeout(self.patience_s) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    @property
    def is_waiting(self) -> bool:
        return self._num_waiting > 0

    def begin(self, now_s: float) -> None:
        self._num_waiting += 1
        if self._num_waiting == 1:
            self._since_s = now_s
            self.on_begin()

    def end(self, now_s: float) -> None:
        self._num_waiting -= 1
        if self._num_waiting == 0:
            self._ended_s += now_s - self._since_s

    def waited_s(self, now_s: float) -> float:
        """Return how long the turn has waited so far."""
        return self._ended_s + (now_s - self._since_s if self.is_waiting else 0.0)
