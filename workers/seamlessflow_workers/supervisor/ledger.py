"""Records the machine's ledger: its activity, second by second.

The recorder takes readings (state, cause, job) with the number of requests in flight, on a monotonic clock that the
caller reads. It keeps closed intervals with consecutive numbers until the control plane acknowledges them.
Invariant: intervals are adjacent, and together with the open one they cover the time since the recorder was made.

Changes closer together than `shortest_s` become one interval. Its label is the reading that lasted longest, corrected
by the time that earlier such intervals credited to or withheld from each reading, so fast flapping keeps its
proportions.
"""

from collections import deque
from dataclasses import dataclass
from uuid import UUID

from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ledger import IdleCause, LedgerState

SHORTEST_S = 0.005
LONGEST_S = 10.0  # the most that a supervisor's sudden death can leave unknown
NUM_BUFFERED_MAX = 4096


@dataclass(frozen=True, slots=True)
class Reading:
    """A state of the ledger; only idle has a cause. `num_engines`: serving, the number of engines with these
    requests."""

    state: LedgerState
    cause: IdleCause | None = None
    job_id: UUID | None = None
    num_engines: int = 1

    def __post_init__(self) -> None:
        if (self.state is LedgerState.IDLE) != (self.cause is not None):
            raise ValueError(f"a ledger reading of state {self.state} cannot have the cause {self.cause}")


@dataclass(frozen=True, slots=True)
class _Span:
    reading: Reading
    start_s: float
    end_s: float
    request_seconds: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class LedgerRecorder:
    """Not thread-safe; the supervisor's loop is its only user."""

    def __init__(
        self,
        *,
        now_s: float,
        reading: Reading,
        shortest_s: float = SHORTEST_S,
        longest_s: float = LONGEST_S,
        num_buffered_max: int = NUM_BUFFERED_MAX,
    ) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._num_buffered_max = num_buffered_max
        self._numbered: deque[Interval] = deque()  # sent at least once, so they must not change
        self._unnumbered: deque[_Span] = deque()
        self._next_seq = 0
        self._reading = reading
        self._num_in_flight = 0
        self._last_s = now_s
        self._window_start_s = now_s
        self._window: dict[Reading, float] = {}
        self._lasted_s = (
            0.0  # how long the present reading has lasted in this window, since it became the present one
        )
        self._owed: dict[Reading, float] = {}
        self._request_seconds = 0.0

    @property
    def open_reading(self) -> Reading:
        return self._reading

    @property
    def open_since_s(self) -> float:
        return self._window_start_s

    def observe(self, *, now_s: float, reading: Reading, num_in_flight: int = 0) -> None:
        """Note the reading that begins at `now_s`."""
        self._account(now_s)
        window_s = self._last_s - self._window_start_s
        is_change = reading is not self._reading and reading != self._reading
        if window_s > 0 and ((is_change and window_s >= self._shortest_s) or window_s >= self._longest_s):
            self._close_window()
        if is_change:
            self._credit_reading()
            self._reading = reading
        self._num_in_flight = num_in_flight

    def recount(self, *, now_s: float, num_in_flight: int) -> None:
        """Note the number of requests in flight; the reading stays."""
        self.observe(now_s=now_s, reading=self._reading, num_in_flight=num_in_flight)

    def batch(self, *, num_max: int) -> list[Interval]:
        """Return the oldest unacknowledged intervals; a repeated call returns the same ones."""
        while self._unnumbered and len(self._numbered) < num_max:
            self._numbered.append(_interval(self._unnumbered.popleft(), seq=self._next_seq))
            self._next_seq += 1
        return list(self._numbered)[:num_max]

    def acknowledge(self, num_intervals: int) -> None:
        """Drop the intervals numbered below `num_intervals`, which are stored."""
        while self._numbered and self._numbered[0].seq < num_intervals:
            self._numbered.popleft()

    def _account(self, now_s: float) -> None:
        elapsed_s = max(now_s - self._last_s, 0.0)
        self._last_s = max(now_s, self._last_s)
        self._lasted_s += elapsed_s
        self._request_seconds += elapsed_s * self._num_in_flight

    def _credit_reading(self) -> None:
        if self._lasted_s > 0:
            self._window[self._reading] = self._window.get(self._reading, 0.0) + self._lasted_s
        self._lasted_s = 0.0

    def _close_window(self) -> None:
        self._credit_reading()
        window_s = self._last_s - self._window_start_s
        balance = {
            reading: lasted_s + self._owed.get(reading, 0.0) for reading, lasted_s in self._window.items()
        }
        label = max(balance, key=lambda reading: balance[reading])
        balance[label] -= window_s
        self._owed = balance
        self._keep(_Span(label, self._window_start_s, self._last_s, self._request_seconds))
        self._window_start_s = self._last_s
        self._window = {}
        self._request_seconds = 0.0

    def _keep(self, span: _Span) -> None:
        self._unnumbered.append(span)
        while len(self._unnumbered) > self._num_buffered_max:
            older, newer = self._unnumbered.popleft(), self._unnumbered.popleft()
            self._unnumbered.appendleft(_merged(older, newer))


def _merged(older: _Span, newer: _Span) -> _Span:
    longer = older if older.duration_s >= newer.duration_s else newer
    return _Span(longer.reading, older.start_s, newer.end_s, older.request_seconds + newer.request_seconds)


def _interval(span: _Span, *, seq: int) -> Interval:
    is_serving = span.reading.state is LedgerState.SERVING
    return Interval(
        seq=seq,
        state=span.reading.state,
        cause=span.reading.cause,
        job_id=span.reading.job_id,
        start_s=span.start_s,
        end_s=span.end_s,
        mean_in_flight=span.request_seconds / span.duration_s if is_serving else None,
        num_engines=span.reading.num_engines,
    )
