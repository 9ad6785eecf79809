"""Records held time durably: how long infrastructure kept each session waiting.

Two things count. While a turn waits for an engine, the session's `StallTimer` runs; it is made durable within a second.
When the gateway itself was down, blocked or without its database, the gap between two of its signs of life counts for
all its open sessions (`store/gateways`). What a timer counted within such a gap is dropped, so no second counts twice.

Invariant: after a gateway dies, the recorded time of a session is wrong by no more than about a second.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.data_plane.gateways.membership import Membership, Signed
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Connection, Pool
from seamlessflow.data_plane.store.gateways import absence_credit
from seamlessflow.data_plane.store.turns.holds import HoldRow, hold_read, holds_write, sessions_held_read
from seamlessflow.data_plane.store.turns.node_rows import SessionKey
from seamlessflow.data_plane.turns.engines.stall_timer import StallTimer

log = logging.getLogger(__name__)

SIGN_S = 1.0  # interval of the signs of life
ABSENCE_S = 3.0  # a longer gap between two signs of one process counts as an absence
NOTE_S = 0.2  # shorter times stay in memory until the next write: most turns wait only for a moment


@dataclass(slots=True)
class _Active:
    """A timer that runs, or that has changed since it was recorded."""

    key: SessionKey
    clock: StallTimer
    recorded_stretch: int | None = None  # the stretch that is still running according to its row


@dataclass(slots=True)
class HeldTime:
    """One per process. The task that holds a turn moves its session's timer; `run` makes the timers durable."""

    pool: Pool
    membership: Membership
    clock: Callable[[], float]  # monotonic seconds
    _active: dict[UUID, _Active] = field(default_factory=dict)
    _last_sign_s: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def clock_new(self, key: SessionKey) -> StallTimer:
        """Return the timer of a session that this gateway has just opened."""
        return StallTimer(on_change=lambda clock: self._changed(key, clock))

    async def clock_load(self, key: SessionKey) -> StallTimer:
        """Return the timer of a session that is read back from the store."""
        if (active := self._active.get(key.session_id)) is not None:
            return active.clock
        clock = self.clock_new(key)
        async with self.pool.connection() as connection:
            clock.durable_s = await hold_read(connection, key.session_id)
        return clock

    async def held_s(self, job_id: UUID, session_ids: Sequence[UUID]) -> dict[UUID, float]:
        """Return how long sessions of the job were held so far; 0 for a session that is not the job's."""
        async with self._lock:
            await self._record()  # a standstill that has just ended counts already
            async with self.pool.connection() as connection:
                rows = await sessions_held_read(connection, job_id, session_ids)
            now_s = self.clock()
            held = dict.fromkeys(session_ids, 0.0)
            for session_id, (recorded_s, away_s) in rows.items():
                active = self._active.get(session_id)
                held[session_id] = away_s + (active.clock.held_s(now_s) if active else recorded_s)
            return held

    async def run(self) -> None:
        """Give a sign of life each second until cancelled. If the database is unreachable, try again."""
        while True:
            await asyncio.sleep(SIGN_S)
            try:
                await self.record()
            except DATABASE_AWAY as error:
                log.warning("held time is not recorded, the database is unreachable: %s", str(error).strip())

    async def record(self) -> None:
        """Give a sign of life and record what has changed. A process's first call begins its epoch."""
        async with self._lock:
            await self._record()

    async def _record(self) -> None:
        now_s = self.clock()
        taken: dict[UUID, float] = {}
        try:
            async with self.pool.connection() as connection, connection.transaction():
                signed, was_away = await self._sign(connection, now_s)
                taken.update(
                    (session, active.clock.cut(now_s)) for session, active in self._due(now_s, was_away)
                )
                rows = [row for session in taken if (row := self._row(session, taken, was_away)) is not None]
                await holds_write(connection, self.membership.name, rows)
        except BaseException:
            for session, seconds in taken.items():
                self._active[session].clock.give_back(seconds)
            raise
        self._last_sign_s = now_s
        self.membership.set(signed)
        self._make_durable(
            {session: 0.0 if was_away else seconds for session, seconds in taken.items()}, rows
        )

    async def _sign(self, connection: Connection, now_s: float) -> tuple[Signed, bool]:
        """Give a sign of life. Returns what it showed, and whether this gateway was away since the last one."""
        if self._last_sign_s is None:
            return await self.membership.join(connection), False
        signed, gap_s = await self.membership.sign(connection), now_s - self._last_sign_s
        for name in signed.ended:
            log.warning("the gateway %s is gone; its sessions open elsewhere", name)
        if signed.has_new_epoch:
            log.warning("this gateway was silent for %.1f s, and the others took its sessions", gap_s)
            return signed, True
        if gap_s <= ABSENCE_S:
            return signed, False
        await absence_credit(connection, signed.epoch, gap_s)
        log.warning("this gateway was blocked for %.1f s", gap_s)
        return signed, True

    def _due(self, now_s: float, was_away: bool) -> list[tuple[UUID, _Active]]:
        return [
            (session, active)
            for session, active in self._active.items()
            if was_away or active.recorded_stretch is not None or active.clock.fresh_s(now_s) >= NOTE_S
        ]

    def _row(self, session: UUID, taken: dict[UUID, float], was_away: bool) -> HoldRow | None:
        """Return the row to write for a session; None if its row is still correct."""
        active = self._active[session]
        is_told = active.clock.is_running and active.recorded_stretch == active.clock.stretch
        if is_told and not was_away:
            return None
        total_s = active.clock.durable_s + (0.0 if was_away else taken[session])
        return HoldRow(active.key, total_s, active.clock.is_running, active.clock.stretch)

    def _make_durable(self, taken: dict[UUID, float], rows: Sequence[HoldRow]) -> None:
        for session, seconds in taken.items():
            self._active[session].clock.durable_s += seconds
        for row in rows:
            self._active[row.key.session_id].recorded_stretch = row.stretch if row.is_running else None
        now_s = self.clock()
        for session, active in list(self._active.items()):
            if (
                not active.clock.is_running
                and active.recorded_stretch is None
                and not active.clock.fresh_s(now_s)
            ):
                del self._active[session]

    def _changed(self, key: SessionKey, clock: StallTimer) -> None:
        if key.session_id not in self._active:
            self._active[key.session_id] = _Active(key, clock)
