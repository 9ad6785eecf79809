"""Who may use how much of a device's memory at this moment: the processes of one machine, asleep and awake.

A phase has all devices of its machine, so one sum stands for each of them: that of the smallest. Takes what processes
need while they are awake (estimated, later measured) and the bytes that they reported to keep while they sleep.
Returns whether one more may wake or load, otherwise why not and who would have to go.
States of a process: asleep ⇄ awake (it loads or works). Invariant: the booked sum is never more than a device has, as
long as no process keeps more than it had booked.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from seamlessflow.core.sizing.memory_needs import size_text

Process = TypeVar("Process")  # hashable


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a process wants of each device while it is awake: `num_bytes` for certain; up to `usual_bytes`, an estimate,
    if they are free; and with a `share` above 0 that share of all that others leave while they sleep."""

    num_bytes: int
    usual_bytes: int = 0
    share: float = 0.0


@dataclass(slots=True)
class _Booking:
    name: str  # for people
    wanted: Wanted
    is_awake: bool = False
    is_flexible: bool = False  # it took all free memory when it was started
    used_bytes: int = 0  # while it is awake
    kept_bytes: int = 0  # while it sleeps

    @property
    def num_bytes(self) -> int:
        return self.used_bytes if self.is_awake else self.kept_bytes

    @property
    def words(self) -> str:
        does = "uses" if self.is_awake else "keeps while it sleeps"
        return f"{size_text(self.num_bytes)} that {self.name} {does}"


class Bookings(Generic[Process]):
    """With `total_bytes` 0, the size of the devices is not known, and everybody may wake."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._bookings: dict[Process, _Booking] = {}

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._bookings))

    def __contains__(self, process: Process) -> bool:
        return process in self._bookings

    def num_bytes(self, process: Process) -> int:
        """Return what a process has booked of each device."""
        return self._bookings[process].num_bytes

    def is_awake(self, process: Process) -> bool:
        return self._bookings[process].is_awake

    def add(self, process: Process, name: str, wanted: Wanted) -> None:
        """Add a process that is not loaded yet."""
        self._bookings[process] = _Booking(name, wanted)

    def remove(self, process: Process) -> None:
        self._bookings.pop(process, None)

    def refusal(self, name: str, wanted: Wanted) -> str:
        """Return why a process that is not started yet could not load beside the others; "" if it could."""
        return self._refusal(_Booking(name, wanted), list(self._bookings.values()))

    def wake(self, process: Process) -> str:
        """Book what the process needs to load or to work. Return why that is impossible; "" once it is booked."""
        booking = self._bookings[process]
        if booking.is_awake:
            return ""
        others = self._others(process)
        if refusal := self._refusal(booking, others):
            return refusal
        booking.is_awake = True
        booking.used_bytes = self._granted_bytes(booking.wanted, others)
        if booking.wanted.share > 0:
            booking.is_flexible = True
            booking.wanted = Wanted(booking.used_bytes)  # for as long as it lives
        return ""

    def sleep(self, process: Process, *, kept_bytes: int | None = None, peak_bytes: int = 0) -> None:
        """Take what a process keeps from now on (None: as much as the last time), and the most that it used while it
        was awake (0: not known)."""
        booking = self._bookings[process]
        booking.is_awake = False
        if kept_bytes is not None:
            booking.kept_bytes = kept_bytes
        if peak_bytes:
            booking.wanted = Wanted(peak_bytes)

    def losses(self, process: Process, order: Sequence[Process]) -> list[Process]:
        """Return who of `order`, from its beginning, has to go before the process can wake, without those that make no
        difference. If not even all of them suffice, return none: others have to fall asleep first."""
        booking, lost = self._bookings[process], list[Process]()
        while self._refusal(booking, self._others(process, *lost)):
            if len(lost) == len(order):
                return []
            lost.append(order[len(lost)])
        for candidate in tuple(lost):
            others = [one for one in lost if one != candidate]
            if not self._refusal(booking, self._others(process, *others)):
                lost = others
        return lost

    def share(self, process: Process) -> float | None:
        """Return the share of a device that a process was given which takes all free memory; None for all others."""
        booking = self._bookings[process]
        return (
            booking.wanted.num_bytes / self.total_bytes if booking.is_flexible and self.total_bytes else None
        )

    def is_outgrown(self, process: Process, beside: Iterable[Process]) -> bool:
        """Whether a process took all free memory when it was started, and `beside` keeps too much of it now."""
        booking = self._bookings[process]
        kept_bytes = sum(self._bookings[other].kept_bytes for other in beside)
        return booking.is_flexible and booking.wanted.num_bytes + kept_bytes > self.total_bytes > 0

    def _others(self, *processes: Process) -> list[_Booking]:
        return [booking for process, booking in self._bookings.items() if process not in processes]

    def _refusal(self, booking: _Booking, others: Sequence[_Booking]) -> str:
        needed_bytes = self._needed_bytes(booking.wanted, others)
        if (
            not self.total_bytes
            or needed_bytes + sum(other.num_bytes for other in others) <= self.total_bytes
        ):
            return ""
        beside = " and ".join(other.words for other in others if other.num_bytes)
        return (
            f"{booking.name} needs {size_text(needed_bytes)} beside {beside}, but a device has "
            f"{size_text(self.total_bytes)}"
        )

    def _needed_bytes(self, wanted: Wanted, others: Iterable[_Booking]) -> int:
        """Return what has to be free. It is never more than a device has: no sum keeps a process from working alone."""
        left_bytes = self.total_bytes - sum(other.kept_bytes for other in others)
        needed_bytes = max(wanted.num_bytes, int(wanted.share * max(left_bytes, 0)))
        return min(needed_bytes, self.total_bytes) if self.total_bytes else wanted.num_bytes

    def _granted_bytes(self, wanted: Wanted, others: Sequence[_Booking]) -> int:
        """Return what has to be free, and as much of the rest of the estimate as is free."""
        free_bytes = self.total_bytes - sum(other.num_bytes for other in others)
        return max(self._needed_bytes(wanted, others), min(wanted.usual_bytes, free_bytes))
