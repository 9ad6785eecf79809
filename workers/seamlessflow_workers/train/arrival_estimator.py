"""Estimates when the next batch will arrive from how often batches came.

It takes the moments at which batches arrived, on a clock that the caller reads, and returns the seconds still to wait.
So a machine of two roles knows whether waiting costs less than handing the machine over and back.
"""

from collections import deque

NUM_INTERVALS = 4


class BatchArrivalEstimator:
    """Mean interval of the last arrivals. Batches that wait already arrive as fast as they are trained."""

    def __init__(self, *, num_intervals: int = NUM_INTERVALS) -> None:
        self._arrivals_s: deque[float] = deque(maxlen=num_intervals + 1)

    def arrived(self, now_s: float) -> None:
        self._arrivals_s.append(now_s)

    def expected_wait_s(self, now_s: float) -> float:
        """Return the expected wait in seconds; 0 while nothing is known, and once the batch is late."""
        num_intervals = len(self._arrivals_s) - 1
        if num_intervals < 1:
            return 0.0
        interval_s = (self._arrivals_s[-1] - self._arrivals_s[0]) / num_intervals
        return max(self._arrivals_s[-1] + interval_s - now_s, 0.0)
