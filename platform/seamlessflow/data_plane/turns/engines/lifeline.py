"""What ties one request to the engine that works on it: each await of an answer can be cut from outside.

States: tied → cut. Invariant: `EngineStalled` is raised only inside `wait`, never in whatever the caller does between
two pieces.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from seamlessflow.core.liveness.stall import StallWatch

Answer = TypeVar("Answer")


class EngineStalled(Exception):
    """The engine is suspected; whatever it may still say comes too late."""


@dataclass(slots=True, eq=False)
class Lifeline:
    """`last_heard_s`: when the request began or its last tokens came, on `clock`."""

    clock: Callable[[], float]
    stall: StallWatch
    num_prompt_tokens: int
    last_heard_s: float = field(init=False)
    has_tokens: bool = False
    _cut_because: str | None = None
    _waiting: asyncio.Timeout | None = None

    def __post_init__(self) -> None:
        self.last_heard_s = self.clock()

    @property
    def is_cut(self) -> bool:
        return self._cut_because is not None

    @property
    def doubted_since_s(self) -> float | None:
        """Return since when the wait may be the engine's fault; None while the engine shows progress."""
        return self.last_heard_s if self.stall.is_in_doubt else None

    def heard(self, now_s: float) -> None:
        """Note that tokens came."""
        self.last_heard_s = now_s
        self.has_tokens = True
        self.stall.heard()

    def cut(self, reason: str) -> None:
        """End the present wait and every later one."""
        self._cut_because = reason
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, answer: Awaitable[Answer]) -> Answer:
        """Raises EngineStalled once cut."""
        try:
            async with asyncio.timeout(0 if self.is_cut else None) as self._waiting:
                return await answer
        except TimeoutError as error:
            if self._cut_because is None:
                raise
            raise EngineStalled(self._cut_because) from error
        finally:
            self._waiting = None
