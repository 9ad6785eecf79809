"""Answers that a failed session did not get to see, for the next attempt of its slot.

In: the answers that turns of failed sessions have sampled, and may be sampling still. Out: the answers for a request
that wants exactly the same, once. A slot also lists the requests of its failed sessions that have yet to end.
Invariant: an answer for which no session will ask any more stops growing: one of a dropped slot, and the oldest if
there is too much.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import Begun, Wanted
from seamlessflow.data_plane.turns.trajectory_manager.in_flight import InFlight

MAX_BYTES = 256 << 20
SLOT_BYTES = 4096  # of a slot beside its answers
_BYTES_PER_TOKEN = 8  # its id and its logprob

SlotKey = tuple[UUID, int]  # a group and the number of a slot


@dataclass(slots=True)
class _Slot:
    job_id: UUID
    answers: list[Begun] = field(default_factory=list)  # the oldest first
    flights: list[InFlight] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        return SLOT_BYTES + sum(map(_num_bytes, self.answers))

    def stop(self) -> None:
        for begun in self.answers:
            if begun.growth is not None:
                begun.growth.cancel()


class UnclaimedAnswers:
    """Those of all slots; one per process."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._slots: OrderedDict[SlotKey, _Slot] = OrderedDict()

    def add(self, key: SlotKey, job_id: UUID, begun: Begun) -> None:
        slot = self._pop(key) or _Slot(job_id)
        slot.answers.append(begun)
        self._put(key, slot)

    def expect(self, key: SlotKey, job_id: UUID, flights: list[InFlight]) -> None:
        """List requests that are about to end, and may add answers before they do."""
        if flights:
            slot = self._pop(key) or _Slot(job_id)
            slot.flights += flights
            self._put(key, slot)

    async def has_waited(self, key: SlotKey) -> bool:
        """Wait until the expected requests have ended. Returns False if there were none."""
        slot = self._slots.get(key)
        if slot is None:
            return False
        slot.flights = [flight for flight in slot.flights if not flight.is_ended]
        await asyncio.gather(*(ended := [flight.ended() for flight in slot.flights]))
        return bool(ended)

    def take(self, key: SlotKey, wanted: Wanted) -> Begun | None:
        """Return the oldest answers that were begun for the same; they are no longer kept. None if there are none."""
        slot = self._slots.get(key)
        for number, begun in enumerate(slot.answers if slot else ()):
            if begun.wanted == wanted and (begun.is_growing or begun.has_tokens):
                assert slot is not None
                self._num_bytes -= _num_bytes(slot.answers.pop(number))
                return begun
        return None

    def sources(self, key: SlotKey) -> set[UUID]:
        """Return the recorded turns whose answers are kept here."""
        slot = self._slots.get(key)
        return {begun.source for begun in slot.answers if begun.source} if slot else set()

    def drop(self, key: SlotKey) -> None:
        """Stop and forget the answers kept for a slot: it has its outcome, or begins anew."""
        if (slot := self._pop(key)) is not None:
            slot.stop()

    def drop_job(self, job_id: UUID) -> None:
        for key in [key for key, slot in self._slots.items() if slot.job_id == job_id]:
            self.drop(key)

    def _pop(self, key: SlotKey) -> _Slot | None:
        slot = self._slots.pop(key, None)
        self._num_bytes -= slot.num_bytes if slot else 0
        return slot

    def _put(self, key: SlotKey, slot: _Slot) -> None:
        self._slots[key] = slot
        self._num_bytes += slot.num_bytes
        while self._num_bytes > self._max_bytes and len(self._slots) > 1:
            self.drop(next(iter(self._slots)))


def _num_bytes(begun: Begun) -> int:
    wanted = begun.wanted
    return len(wanted.prompt_ids) + _BYTES_PER_TOKEN * wanted.max_tokens * wanted.num_choices
