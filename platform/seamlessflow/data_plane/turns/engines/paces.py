"""How fast an engine samples while it is full, as this gateway sees it.

An engine is full while its turns, those of other gateways among them, take all of its slots. Only then do its tokens
and seconds count, so lengths of turns, ends of batches and small batches make no difference. An answer that came in one
chunk counts as far as the engine was full meanwhile. The sums forget with time.

Invariant: of a full engine's seconds, each gateway counts the part that its turns are of all turns there, so the sums
over the gateways are the engine's own tokens and seconds.
"""

from dataclasses import dataclass

HALF_LIFE_S = 120.0  # after so long, a count weighs half
MIN_REPORTED_S = 1.0  # fewer seconds are not worth a report


@dataclass(slots=True)
class EnginePace:
    """The counts of one engine. `num_tokens`, `seconds`: while it was full, lately."""

    since_s: float  # up to when its time is counted
    num_tokens: float = 0.0
    seconds: float = 0.0
    full_s: float = 0.0  # how long it was full in all
    _part: float = 0.0  # what this gateway's turns are of all its turns; 0: it is not full
    _forgotten_s: float | None = None

    def turns_set(self, *, num_own: int, num_others: int, num_slots: int, now_s: float) -> None:
        """Note how many turns the engine has from now on, of this gateway and of others."""
        self.advance(now_s)
        num_turns = num_own + num_others
        self._part = num_own / num_turns if num_turns >= num_slots else 0.0

    def advance(self, now_s: float) -> None:
        """Count the time until now."""
        if self._part:
            passed_s = now_s - self.since_s
            self.full_s += passed_s
            self.seconds += passed_s * self._part
        self.since_s = now_s

    def sums(self, now_s: float) -> tuple[float, float] | None:
        """Return tokens and seconds, old ones weighing less; None if the engine has hardly been full."""
        self.advance(now_s)
        if self._forgotten_s is not None:
            weight = 0.5 ** ((now_s - self._forgotten_s) / HALF_LIFE_S)
            self.num_tokens *= weight
            self.seconds *= weight
        self._forgotten_s = now_s
        return (self.num_tokens, self.seconds) if self.seconds >= MIN_REPORTED_S else None


class TurnPace:
    """Counts the tokens of one turn at one engine: a few operations for each chunk."""

    __slots__ = ("_full_s", "_pace", "_since_s")

    def __init__(self, pace: EnginePace, now_s: float) -> None:
        pace.advance(now_s)
        self._pace, self._since_s, self._full_s = pace, now_s, pace.full_s

    def sampled(self, num_tokens: int, now_s: float) -> None:
        """Count tokens that were sampled since the chunk before, as far as the engine was full meanwhile."""
        pace, passed_s = self._pace, now_s - self._since_s
        pace.advance(now_s)
        if passed_s > 0.0:
            pace.num_tokens += num_tokens * (pace.full_s - self._full_s) / passed_s
        self._since_s, self._full_s = now_s, pace.full_s
