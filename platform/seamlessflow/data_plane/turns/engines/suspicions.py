"""Reports suspected engines: one event when the suspicion begins, one when the engine is back.

It takes suspicions as they happen and writes the job's events `engine.suspected` and `engine.rejoined` in order, as
soon as the database is reachable; the watch never waits for that.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seamlessflow.data_plane.store.connection import DATABASE_AWAY, RETRY_S, Pool
from seamlessflow.data_plane.store.events import engine_event
from seamlessflow.data_plane.store.jobs import Engine

log = logging.getLogger(__name__)

SUSPECTED, REJOINED = "engine.suspected", "engine.rejoined"
NUM_UNTOLD_MAX = 1000  # events kept while the database is unreachable


@dataclass(frozen=True, slots=True)
class Suspicion:
    engine: Engine
    silent_s: float
    num_turns: int


@dataclass(frozen=True, slots=True)
class _Event:
    job_id: UUID
    kind: str
    reason: str
    data: dict[str, Any]


class SuspicionLog:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._untold: asyncio.Queue[_Event] = asyncio.Queue(NUM_UNTOLD_MAX)

    def began(self, suspicion: Suspicion) -> None:
        engine, silent_s, num_turns = suspicion.engine, suspicion.silent_s, suspicion.num_turns
        turns = "1 turn" if num_turns == 1 else f"{num_turns} turns"
        self._add(
            engine,
            SUSPECTED,
            f"{engine.noun} yielded no token for {silent_s:.1f} s while it held {turns}; "
            "it gets no more turns until it samples again",
            {"seconds": round(silent_s, 3), "num_turns": num_turns},
        )

    def ended(self, engine: Engine, *, away_s: float) -> None:
        self._add(
            engine,
            REJOINED,
            f"{engine.noun} samples again, {away_s:.1f} s after it was suspected",
            {"seconds": round(away_s, 3)},
        )

    async def run(self) -> None:
        """Write events as they come, until cancelled."""
        while True:
            event = await self._untold.get()
            while not await self._told(event):  # noqa: ASYNC110 - the database: there is no event
                await asyncio.sleep(RETRY_S)

    async def _told(self, event: _Event) -> bool:
        try:
            async with self._pool.connection() as connection:
                await engine_event(
                    connection, job_id=event.job_id, kind=event.kind, reason=event.reason, data=event.data
                )
        except DATABASE_AWAY as error:
            log.warning("the database is unreachable: %s", str(error).strip())
            return False
        return True

    def _add(self, engine: Engine, kind: str, reason: str, data: dict[str, Any]) -> None:
        log.warning("%s", reason)
        data |= {"machine": engine.machine, "phase_id": str(engine.phase_id), "replica": engine.replica}
        try:
            self._untold.put_nowait(_Event(engine.job_id, kind, reason, data))
        except asyncio.QueueFull:
            log.warning("the event %s is lost: the database has been unreachable for too long", kind)
