"""Decides when to give up on a child process: it was asked for a sign of life for too long and gave none.

`Pulse` takes the listener's ticks and the child's signs of life, and says whether the child is lost. Time counts only
while the listener itself is awake: a supervisor that was stopped does not kill its children when it continues.
"""

from dataclasses import dataclass

ASK_EVERY_S = 1.0
LONGEST_TICK_S = 2 * ASK_EVERY_S


@dataclass(slots=True)
class Pulse:
    """Decides whether a child is lost. `limit_s`: how long it may be silent."""

    limit_s: float
    silence_s: float = 0.0

    def listened(self, elapsed_s: float) -> None:
        self.silence_s += min(elapsed_s, LONGEST_TICK_S)

    def beat(self) -> None:
        self.silence_s = 0.0

    @property
    def is_lost(self) -> bool:
        return self.silence_s >= self.limit_s
