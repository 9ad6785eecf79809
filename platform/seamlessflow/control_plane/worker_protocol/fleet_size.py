"""How many machines there are, as far as heartbeats need to know it.

Each process remembers the number, and the statement of a heartbeat counts again once it is COUNT_EVERY_S old. So
heartbeats do not cost more with more machines, and no request waits for a count of its own. Invariant: the
interval that a machine gets follows the number of machines within COUNT_EVERY_S.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from seamlessflow.core.scheduling.heartbeats import heartbeat_interval_s

COUNT_EVERY_S = 10.0


@dataclass(slots=True)
class FleetSize:
    """Threads may count at the same time; that is harmless."""

    clock: Callable[[], float] = time.monotonic
    _num: int = 0
    _counted_s: float = float("-inf")

    @property
    def is_old(self) -> bool:
        return self.clock() - self._counted_s >= COUNT_EVERY_S

    @property
    def interval_s(self) -> float:
        return heartbeat_interval_s(self._num)

    def note(self, num_machines: int | None) -> None:
        """Remember a count; None if the statement did not count."""
        if num_machines is not None:
            self._num, self._counted_s = num_machines, self.clock()


fleet_size = FleetSize()
