"""How often something failed in a row, and how long to wait before it is started again."""

import math
import time
from dataclasses import dataclass

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0
STABLE_S = 60.0  # after this lifetime failures are counted anew


@dataclass(slots=True)
class FailureCount:
    """`loaded` when it works, `add` when it has failed."""

    num: int = 0
    _loaded_s: float = math.inf  # monotonic

    @property
    def delay_s(self) -> float:
        return min(FIRST_DELAY_S * 2 ** (self.num - 1), LONGEST_DELAY_S) if self.num else 0.0

    def loaded(self) -> None:
        self._loaded_s = time.monotonic()

    def add(self) -> None:
        if time.monotonic() - self._loaded_s > STABLE_S:
            self.num = 0
        self.num += 1
        self._loaded_s = math.inf
