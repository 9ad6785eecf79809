"""When a turn to train ends: takes how many batches it was leased for and when batches came, all on the caller's clock.

A turn that has its batches goes on if the next one is here, or due sooner than the machine could be handed over and
back. Invariant: a trainer waits no longer than that for a batch, whatever was predicted.
"""

from collections import deque

NUM_INTERVALS = 4  # of arrivals, over which their mean is taken
PATIENCE_S = 0.1  # about the cost of handing the machine over and back


class BatchArrivalEstimator:
    """Predicts from the last arrivals when the next batch is due, on a clock that the caller reads.

    So a machine of two roles knows whether waiting costs less than handing the machine over and back. Batches that are
    already waiting arrive as fast as they are trained.
    """

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


def is_fulfilled(num_published: int, num_batches: int | None) -> bool:
    """Whether a turn has published the batches that it was leased for. None: it was leased for as long as the job
    runs."""
    return num_batches is not None and num_published >= num_batches


def patience_s(arrivals: BatchArrivalEstimator, now_s: float) -> float:
    """Return for how long a turn that is fulfilled waits for the batch that it asked for."""
    return PATIENCE_S if arrivals.expected_wait_s(now_s) <= PATIENCE_S else 0.0
