"""When a silent party is suspected: it has been silent for longer than its own pace explains.

`StallWatch` takes durations that a listener measures (its own ticks), signs of progress and answers to probes; it says
whether to probe and whether to suspect. Time counts only while the listener is awake, so one that was stopped suspects
no party. Invariants: no party is suspected within LEAST_ALLOWED_S of silence, nor for silence alone: a probe must have
gone unanswered or have been answered without progress; a party without progress is suspected after MOST_ALLOWED_S at
the latest.
"""

from dataclasses import dataclass, field
from enum import Enum

LEAST_ALLOWED_S = 5.0
MOST_ALLOWED_S = 120.0
LONGEST_TICK_S = 1.0  # the rest of a longer tick was the listener's own sleep
GAP_FACTOR = 4.0  # the largest gap explains a silence this many times as long
UPDATE_FACTOR = 3.0  # an update of weights explains this many times its usual duration
WINDOW_S = 60.0  # a gap is forgotten after one to two windows
PROBE_EVERY_S = 1.0
DOUBT_S = 0.5  # a silence that may become a suspicion


class ProbeAnswer(Enum):
    MUTE = "mute"  # no answer came
    SAME = "same"  # it answered, but had done nothing since the previous probe
    MOVED = "moved"  # it answered and had done something


@dataclass(slots=True)
class ArrivalEstimator:
    """The largest gap in the present window and in the one before."""

    _present_s: float = 0.0
    _former_s: float = 0.0
    _age_s: float = 0.0

    @property
    def largest_gap_s(self) -> float:
        return max(self._present_s, self._former_s)

    def note(self, gap_s: float) -> None:
        self._present_s = max(self._present_s, gap_s)

    def age(self, elapsed_s: float) -> None:
        self._age_s += elapsed_s
        if self._age_s >= WINDOW_S:
            self._former_s, self._present_s, self._age_s = self._present_s, 0.0, 0.0


def silence_allowed_s(*, largest_gap_s: float, prefill_s: float = 0.0, update_s: float = 0.0) -> float:
    """Return how long a silence is acceptable. `prefill_s`: time for the longest waiting prompt; `update_s`: time for
    an update of weights."""
    usual_s = max(LEAST_ALLOWED_S, GAP_FACTOR * largest_gap_s, UPDATE_FACTOR * update_s)
    return min(usual_s + prefill_s, MOST_ALLOWED_S)


@dataclass(slots=True)
class StallWatch:
    """Watches one party that has work in hand. `progressed` and `probed` note its signs, `listened` notes elapsed time.

    A gap counts towards the estimate only as far as probes were answered in it: a slow party earns patience, a stopped
    one does not. A suspicion doubles the allowed silence for a while, so a wrong one is not repeated at once.
    """

    arrivals: ArrivalEstimator = field(default_factory=ArrivalEstimator)
    silence_s: float = 0.0
    _proved_s: float = 0.0  # how much of the silence it answered probes in
    _unprobed_s: float = 0.0
    _answer: ProbeAnswer | None = None

    def progressed(self) -> None:
        """Note that it showed progress."""
        if self.silence_s:
            self.arrivals.note(self._proved_s)
            self._begin()

    def rested(self) -> None:
        """Note that it has nothing in hand, so its silence means nothing."""
        self._begin()

    def listened(self, elapsed_s: float) -> None:
        counted_s = min(elapsed_s, LONGEST_TICK_S)
        self.silence_s += counted_s
        self._unprobed_s += counted_s
        self.arrivals.age(counted_s)

    def probed(self, answer: ProbeAnswer) -> None:
        if answer is ProbeAnswer.MOVED:
            self.progressed()
            return
        self._answer = answer
        if answer is ProbeAnswer.SAME:
            self._proved_s = self.silence_s

    def wants_probe(self) -> bool:
        """Return True once for each interval of silence."""
        if self._unprobed_s < PROBE_EVERY_S:
            return False
        self._unprobed_s = 0.0
        return True

    @property
    def is_in_doubt(self) -> bool:
        return self.silence_s >= DOUBT_S

    def is_stalled(self, *, prefill_s: float = 0.0, update_s: float = 0.0) -> bool:
        return self._answer is not None and self.silence_s >= self._allowed_s(prefill_s, update_s)

    def suspected(self, *, prefill_s: float = 0.0, update_s: float = 0.0) -> None:
        """Note that it was suspected under these allowances; the next time it gets twice as long."""
        self.arrivals.note(2 * self._allowed_s(prefill_s, update_s) / GAP_FACTOR)
        self._begin()

    def _allowed_s(self, prefill_s: float, update_s: float) -> float:
        return silence_allowed_s(
            largest_gap_s=self.arrivals.largest_gap_s, prefill_s=prefill_s, update_s=update_s
        )

    def _begin(self) -> None:
        self.silence_s = self._proved_s = self._unprobed_s = 0.0
        self._answer = None
