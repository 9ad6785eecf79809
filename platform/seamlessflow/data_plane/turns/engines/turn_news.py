"""Tells the scheduler at once if a job wants another number of engines than it was told, and books tokens read again.

It takes the counts of turns and writes them to this gateway's row. The sign of life tells the same numbers once a
second, which is too late where several jobs share machines: an engine whose batch has ended would stand idle beside
jobs that want it. Nothing is written while no job wants more or fewer engines.
"""

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from seamlessflow.core.scheduling.demand import engines_for
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Pool
from seamlessflow.data_plane.store.events import scheduler_notify
from seamlessflow.data_plane.store.gateways import gateway_turns_set, read_again_book
from seamlessflow.data_plane.turns.engines.pool import EnginePool

PERIOD_S = 0.15  # a job's turns have been fewer for one to two of these before its engines go to others
log = logging.getLogger(__name__)


class TurnNews:
    def __init__(self, pool: Pool, membership: Membership, engines: EnginePool) -> None:
        self._pool = pool
        self._membership = membership
        self._engines = engines
        self._told: Mapping[UUID, int] = {}  # engines, by job

    async def run(self) -> None:
        """Look once per period until cancelled. If the database is unreachable, try again in the next one."""
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.look()
            except DATABASE_AWAY as error:
                log.warning("turns are not told, the database is unreachable: %s", str(error).strip())

    async def look(self) -> None:
        """End a period, and tell what it showed if that is news."""
        turns = self._engines.turns.most_lately()
        self._engines.turns.period_end()
        slots = self._engines.slots_by_job()
        # Before a job has an engine, its slots are unknown, and every turn more is news.
        wanted = {job_id: engines_for(num, slots.get(job_id, 1)) for job_id, num in turns.items() if num}
        if wanted != self._told:
            await self._tell(turns, wanted)
        if read_again := self._engines.read_again.take():
            await self._book(read_again)

    async def _tell(self, turns: Mapping[UUID, int], wanted: Mapping[UUID, int]) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            if await gateway_turns_set(connection, self._membership.epoch, turns):
                await scheduler_notify(connection, "turns")
                self._told = wanted

    async def _book(self, read_again: Mapping[UUID, int]) -> None:
        try:
            async with self._pool.connection() as connection:
                await read_again_book(connection, read_again)
        except BaseException:
            self._engines.read_again.give_back(read_again)
            raise
