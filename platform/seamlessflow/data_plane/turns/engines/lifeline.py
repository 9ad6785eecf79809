"""Ends a request to an engine that is suspected, wherever the request waits.

`EngineWatch` cuts the lifelines of an engine; a task that waits for that engine ties the call that ends its wait.
Invariant: once a lifeline is cut, every wait tied to it ends with EngineStalled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.core.liveness.stall import StallWatch


class EngineStalled(Exception):
    """The lifeline was cut because the engine is suspected; whatever the engine may still send is ignored."""


@dataclass(slots=True, eq=False)
class Lifeline:
    """Untied ⇄ tied → cut. `last_heard_s`: when the request began or its last tokens came, on `clock`."""

    clock: Callable[[], float]
    stall: StallWatch
    num_prompt_tokens: int
    last_heard_s: float = field(init=False)
    has_tokens: bool = False
    _cut_because: str | None = None
    _end: Callable[[Exception], None] | None = None

    def __post_init__(self) -> None:
        self.last_heard_s = self.clock()

    @property
    def doubted_since_s(self) -> float | None:
        """Return since when the engine may be at fault for the wait; None while it shows progress."""
        return self.last_heard_s if self.stall.is_in_doubt else None

    def heard(self, now_s: float) -> None:
        """Note that tokens arrived."""
        self.last_heard_s = now_s
        self.has_tokens = True
        self.stall.progressed()

    def cut(self, reason: str) -> None:
        """End the current wait and every later one."""
        self._cut_because = reason
        if self._end is not None:
            self._end(EngineStalled(reason))

    def tie(self, end: Callable[[Exception], None]) -> None:
        """Call `end` with EngineStalled once the lifeline is cut, at once if it already is."""
        self._end = end
        if self._cut_because is not None:
            end(EngineStalled(self._cut_because))

    def untie(self) -> None:
        self._end = None
