"""Counts one session's held time: time that infrastructure cost it, which is never charged to its task.

The timer takes moments of a monotonic clock and returns seconds. Turns that are held at the same time count once, and
no moment counts twice. `cut` returns the time since the last cut; `turns/held_time` makes it durable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.data_plane.turns.engines.lifeline import Lifeline


def _nobody(_: "StallTimer") -> None:
    """Do nothing: this timer is never made durable."""


@dataclass(slots=True, eq=False)
class StallTimer:
    """The timer of one session. Only `HeldTime` changes `durable_s`, the seconds that are in the database."""

    on_change: "Callable[[StallTimer], None]" = _nobody
    durable_s: float = 0.0
    stretch: int = 0  # counts how often it began to run
    _fresh_s: float = 0.0  # since the last cut, without the stretch that is running
    _num_held: int = 0
    _since_s: float = 0.0
    _counted_until_s: float = float("-inf")
    _lifelines: set[Lifeline] = field(default_factory=set)  # of the session's requests in flight

    @property
    def is_running(self) -> bool:
        return self._num_held > 0

    def begin(self, now_s: float) -> None:
        """Start counting: a turn waits for an engine from now on."""
        if self._num_held == 0:
            self._since_s = now_s
            self.stretch += 1
        self._num_held += 1
        self.on_change(self)

    def end(self, now_s: float) -> None:
        self._num_held -= 1
        if self._num_held == 0:
            self._fresh_s += now_s - self._since_s
            self._counted_until_s = max(self._counted_until_s, now_s)
        self.on_change(self)

    def credit(self, since_s: float, until_s: float) -> None:
        """Count a stretch that is known only afterwards, such as that of an engine that turns out to have stalled.

        Time that was counted already is not counted again.
        """
        from_s = max(since_s, self._counted_until_s)
        to_s = min(until_s, self._since_s) if self.is_running else until_s
        if to_s > from_s:
            self._fresh_s += to_s - from_s
            self._counted_until_s = to_s
            self.on_change(self)

    def attach(self, lifeline: Lifeline) -> None:
        self._lifelines.add(lifeline)

    def detach(self, lifeline: Lifeline) -> None:
        self._lifelines.discard(lifeline)

    def doubted_s(self, now_s: float) -> float:
        """Return how long engines in doubt have been silent: held time if they turn out to be stalled, else nothing."""
        since = [since_s for line in self._lifelines if (since_s := line.doubted_since_s) is not None]
        return max(0.0, now_s - max(min(since), self._counted_until_s)) if since else 0.0

    def fresh_s(self, now_s: float) -> float:
        """Return the seconds counted since the last cut."""
        return self._fresh_s + (now_s - self._since_s if self.is_running else 0.0)

    def held_s(self, now_s: float) -> float:
        return self.durable_s + self.fresh_s(now_s)

    def cut(self, now_s: float) -> float:
        """Return the seconds counted since the last cut and start again from zero."""
        taken_s, self._fresh_s = self.fresh_s(now_s), 0.0
        if self.is_running:
            self._since_s = self._counted_until_s = now_s
        return taken_s

    def give_back(self, seconds: float) -> None:
        """Take back seconds that could not be made durable."""
        self._fresh_s += seconds
