"""The durable account of held time: how long infrastructure kept each session from going on.

Two things count. A turn waits for an engine: the session's `StallTimer`, made durable within a second. The gateway
itself was away, stood still or could not reach the database: the gap between two of its signs of life, one row for
all sessions. What a clock counted within such a gap is dropped, so no second counts twice.

Invariant: after the death of a gateway the account of a session is wrong by no more than about a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Connection, Pool
from seamlessflow.data_plane.store.turns.holds import (
    HoldRow,
    absence_open_holds_close,
    absence_record,
    hold_read,
    holds_write,
    life_sign,
    sessions_held_read,
)
from seamlessflow.data_plane.store.turns.node_rows import SessionKey
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer

log = logging.getLogger(__name__)

SIGN_S = 1.0  # between two signs of life
ABSENCE_S = 3.0  # a longer gap between two signs of one process is an absence
NOTE_S = 0.2  # less than this waits in memory for the next time: most turns wait for a moment only


class SessionClocks(Protocol):
    """Where the registry gets the clock of a session."""

    def clock_new(self, key: SessionKey) -> StallTimer: ...

    async def clock_load(self, key: SessionKey) -> StallTimer: ...


@dataclass(slots=True)
class _Active:
    """A clock that changed since it was noted, or runs."""

    key: SessionKey
    clock: StallTimer
    noted_stretch: int | None = None  # the stretch that its row says is still running


@dataclass(slots=True)
class HeldTime:
    """One per process. Clocks are moved by whoever holds a turn; `run` makes them durable."""

    pool: Pool
    gateway: str  # its public address: the same after a restart
    clock: Callable[[], float]  # monotonic seconds
    _active: dict[UUID, _Active] = field(default_factory=dict)
    _last_sign_s: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def clock_new(self, key: SessionKey) -> StallTimer:
        """The clock of a session that was opened here just now."""
        return StallTimer(on_change=lambda clock: self._changed(key, clock))

    async def clock_load(self, key: SessionKey) -> StallTimer:
        """The clock of a session that is read back."""
        if (active := self._active.get(key.session_id)) is not None:
            return active.clock
        clock = self.clock_new(key)
        async with self.pool.connection() as connection:
            clock.durable_s = await hold_read(connection, key.session_id)
        return clock

    async def held_s(self, job_id: UUID, session_ids: Sequence[UUID]) -> dict[UUID, float]:
        """For how long sessions of the job were held so far; 0 for those that it does not have."""
        async with self._lock:
            await self._note()  # a standstill that ended just now counts already
            async with self.pool.connection() as connection:
                rows = await sessions_held_read(connection, self.gateway, job_id, session_ids)
            now_s = self.clock()
            held = dict.fromkeys(session_ids, 0.0)
            for session_id, (noted_s, away_s) in rows.items():
                active = self._active.get(session_id)
                held[session_id] = away_s + (active.clock.held_s(now_s) if active else noted_s)
            return held

    async def run(self) -> None:
        """Give a sign of life each second until cancelled; a database that is away is waited for."""
        while True:
            await asyncio.sleep(SIGN_S)
            try:
                await self.note()
            except DATABASE_AWAY as error:
                log.warning("held time is not noted, the database is away: %s", str(error).strip())

    async def note(self) -> None:
        """Give a sign of life and write down what changed. The first call of a process ends its predecessor's time."""
        async with self._lock:
            await self._note()

    async def _note(self) -> None:
        now_s = self.clock()
        taken: dict[UUID, float] = {}
        try:
            async with self.pool.connection() as connection, connection.transaction():
                was_away = await self._sign(connection, now_s)
                taken.update(
                    (session, active.clock.cut(now_s)) for session, active in self._due(now_s, was_away)
                )
                rows = [row for session in taken if (row := self._row(session, taken, was_away)) is not None]
                await holds_write(connection, self.gateway, rows)
        except BaseException:
            for session, seconds in taken.items():
                self._active[session].clock.give_back(seconds)
            raise
        self._last_sign_s = now_s
        self._make_durable(
            {session: 0.0 if was_away else seconds for session, seconds in taken.items()}, rows
        )

    async def _sign(self, connection: Connection, now_s: float) -> bool:
        """Whether this gateway was away since the last sign."""
        gap_s = None if self._last_sign_s is None else now_s - self._last_sign_s
        began_at, ended_at = await life_sign(connection, self.gateway, gap_s=gap_s)
        if began_at is None or (gap_s is not None and gap_s <= ABSENCE_S):
            return False
        await absence_open_holds_close(connection, self.gateway, began_at)
        await absence_record(connection, self.gateway, began_at, ended_at)
        log.warning("this gateway was away for %.1f s", (ended_at - began_at).total_seconds())
        return True

    def _due(self, now_s: float, was_away: bool) -> list[tuple[UUID, _Active]]:
        return [
            (session, active)
            for session, active in self._active.items()
            if was_away or active.noted_stretch is not None or active.clock.fresh_s(now_s) >= NOTE_S
        ]

    def _row(self, session: UUID, taken: dict[UUID, float], was_away: bool) -> HoldRow | None:
        """What is to be written of a session; None while its row goes on telling the truth."""
        active = self._active[session]
        is_told = active.clock.is_running and active.noted_stretch == active.clock.stretch
        if is_told and not was_away:
            return None
        total_s = active.clock.durable_s + (0.0 if was_away else taken[session])
        return HoldRow(active.key, total_s, active.clock.is_running, active.clock.stretch)

    def _make_durable(self, taken: dict[UUID, float], rows: Sequence[HoldRow]) -> None:
        for session, seconds in taken.items():
            self._active[session].clock.durable_s += seconds
        for row in rows:
            self._active[row.key.session_id].noted_stretch = row.stretch if row.is_running else None
        now_s = self.clock()
        for session, active in list(self._active.items()):
            if (
                not active.clock.is_running
                and active.noted_stretch is None
                and not active.clock.fresh_s(now_s)
            ):
                del self._active[session]

    def _changed(self, key: SessionKey, clock: StallTimer) -> None:
        if key.session_id not in self._active:
            self._active[key.session_id] = _Active(key, clock)
