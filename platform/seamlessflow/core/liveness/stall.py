"""When a silent party is suspected: longer silent than its own pace explains.

Enters: what a listener measures, as durations: its own ticks, signs of progress, answers to probes. Leaves: whether to
probe and whether to suspect. Time counts only while the listener itself is awake, so a listener that was stopped blames
nobody. Invariants: nobody is suspected within LEAST_ALLOWED_S of silence, nor on silence alone: a probe must have gone
unanswered, or have been answered without progress; whoever shows no progress is suspected after MOST_ALLOWED_S at the
latest.
"""

from dataclasses import dataclass, field
from enum import Enum

LEAST_ALLOWED_S = 5.0
MOST_ALLOWED_S = 120.0
LONGEST_TICK_S = 1.0  # of a tick that took longer the rest was the listener's own sleep
GAP_FACTOR = 4.0  # silence that a largest gap explains
UPDATE_FACTOR = 3.0  # silence that a usual update of weights explains
WINDOW_S = 60.0  # gaps are forgotten after one to two of these
PROBE_EVERY_S = 1.0
DOUBT_S = 0.5  # a silence that may become a suspicion


class ProbeAnswer(Enum):
    MUTE = "mute"  # none came
    SAME = "same"  # it answered, and had done nothing since the probe before
    MOVED = "moved"  # it answered, and had done something


@dataclass(slots=True)
class ArrivalEstimator:
    """The largest gap of the window under way and of the one before."""

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
    """`prefill_s`: what the longest waiting prompt may take; `update_s`: what an announced update usually takes."""
    usual_s = max(LEAST_ALLOWED_S, GAP_FACTOR * largest_gap_s, UPDATE_FACTOR * update_s)
    return min(usual_s + prefill_s, MOST_ALLOWED_S)


@dataclass(slots=True)
class StallWatch:
    """One party that has work in hand. `heard` and `probed` say what it shows, `listened` that time went by.

    A gap counts towards the estimate as far as probes were answered in it: a slow party earns patience, a stopped one
    does not. A suspicion doubles what is allowed for a while, so one that was wrong is not repeated at once.
    """

    arrivals: ArrivalEstimator = field(default_factory=ArrivalEstimator)
    silence_s: float = 0.0
    _proved_s: float = 0.0  # how much of the silence it answered probes in
    _unprobed_s: float = 0.0
    _answer: ProbeAnswer | None = None

    def heard(self) -> None:
        """It showed progress."""
        if self.silence_s:
            self.arrivals.note(self._proved_s)
            self._begin()

    def rested(self) -> None:
        """It has nothing in hand: silence means nothing."""
        self._begin()

    def listened(self, elapsed_s: float) -> None:
        counted_s = min(elapsed_s, LONGEST_TICK_S)
        self.silence_s += counted_s
        self._unprobed_s += counted_s
        self.arrivals.age(counted_s)

    def probed(self, answer: ProbeAnswer) -> None:
        if answer is ProbeAnswer.MOVED:
            self.heard()
            return
        self._answer = answer
        if answer is ProbeAnswer.SAME:
            self._proved_s = self.silence_s

    def wants_probe(self) -> bool:
        """True once for each interval of silence."""
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
        """It was suspected under these allowances; the next time it is given twice as long."""
        self.arrivals.note(2 * self._allowed_s(prefill_s, update_s) / GAP_FACTOR)
        self._begin()

    def _allowed_s(self, prefill_s: float, update_s: float) -> float:
        return silence_allowed_s(
            largest_gap_s=self.arrivals.largest_gap_s, prefill_s=prefill_s, update_s=update_s
        )

    def _begin(self) -> None:
        self.silence_s = self._proved_s = self._unprobed_s = 0.0
        self._answer = None
