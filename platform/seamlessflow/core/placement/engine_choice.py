"""Which engine serves a turn: takes what a gateway knows of a job's engines and of the turn, returns one or none.

A session stays with the engine that served it last, because its prompt is in the cache there, unless that engine is
much busier than the least loaded one, which is chosen otherwise. Invariant: an engine gets no turn beyond its capacity,
below the version that the turn needs, or while it is suspected, too old or cooling down after a failure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

COOLDOWN_S = 0.5  # an engine that failed gets no request for this long
STICKY_SLACK = 8  # how many more requests the session's own engine may have than the least loaded one
# Turns that queue at the engine, so that it can fill a free slot without asking the gateway: enough to cover the
# moments in which the gateway is busy, few enough that an engine that joins finds turns to take.
FOLLOWING_MIN = 2
FOLLOWING_SHARE = 4  # one queued turn per this many slots


@dataclass(slots=True, eq=False)
class EngineSeen:
    """What a gateway knows of an engine, and keeps up to date. `slot_limit`: how much of its capacity this gateway may
    use; None if it has the engine to itself."""

    num_slots: int  # turns that it decodes at once
    version: int = 0
    is_too_old: bool = False  # tokens that it samples now are beyond the staleness bound
    num_in_flight: int = 0
    slot_limit: int | None = None
    cooldown_until_s: float = 0.0
    is_suspected: bool = False

    @property
    def capacity(self) -> int:
        return self.num_slots + max(FOLLOWING_MIN, self.num_slots // FOLLOWING_SHARE)

    @property
    def has_queue(self) -> bool:
        """Whether the last turn that it got waits for one of its slots."""
        return self.num_in_flight > self.num_slots

    @property
    def has_capacity(self) -> bool:
        return self.num_in_flight < (self.capacity if self.slot_limit is None else self.slot_limit)

    def is_open(self, now_s: float) -> bool:
        """Whether it may get a turn now, if its version suffices."""
        is_sound = not self.is_suspected and not self.is_too_old
        return is_sound and self.has_capacity and self.cooldown_until_s <= now_s


Seen = TypeVar("Seen", bound=EngineSeen)


def engine_choose(
    engines: Iterable[Seen], *, min_version: int = 0, preferred: Seen | None = None, now_s: float
) -> Seen | None:
    """Return the engine that a turn should get now; None if it has to wait. `preferred`: the one that served its
    session last. Among equals, the first one is chosen."""
    fitting = [one for one in engines if one.version >= min_version and one.is_open(now_s)]
    if not fitting:
        return None
    idlest = min(fitting, key=_num_in_flight)
    if preferred is None or preferred not in fitting:
        return idlest
    return preferred if preferred.num_in_flight <= idlest.num_in_flight + STICKY_SLACK else idlest


def _num_in_flight(engine: EngineSeen) -> int:
    return engine.num_in_flight
