"""Reports to the scheduler at once if a job wants more or fewer engines than was reported, and books tokens read again.

It takes the counts of turns and writes them to this gateway's row. The sign of life has the same numbers once a
second, which is too late where several jobs share machines: an engine whose batch has ended would stand idle beside
jobs that want it. It is soon enough for how many more engines than it has a job wants.
"""

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from seamlessflow.core.scheduling.passes.demand import engines_for, is_demand_news
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Pool
from seamlessflow.data_plane.store.events import scheduler_notify
from seamlessflow.data_plane.store.gateways import gateway_turns_set, read_again_book
from seamlessflow.data_plane.turns.engines.pool import EnginePool, JobSlots

# Agents pause between two turns: a job's turns have been fewer for one to two of these before its engines go to others.
# In simulated time counts of this age use 0.81 of the fleet's bound, exact ones 0.82, and counts of a second 0.76.
PERIOD_S = 0.15
log = logging.getLogger(__name__)


class TurnNews:
    def __init__(self, pool: Pool, membership: Membership, engines: EnginePool) -> None:
        self._pool = pool
        self._membership = membership
        self._engines = engines

    async def run(self) -> None:
        """Look once per period until cancelled. If the database is unreachable, try again in the next one."""
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                await self.look()
            except DATABASE_AWAY as error:
                log.warning("turns are not reported, the database is unreachable: %s", str(error).strip())

    async def look(self) -> None:
        """End a period, and report its counts if they are news."""
        turns = self._engines.turns.most_lately()
        self._engines.turns.period_end()
        if self._is_news(turns):
            await self._report(turns)
        if read_again := self._engines.read_again.take():
            await self._book(read_again)

    def _is_news(self, turns: Mapping[UUID, int]) -> bool:
        reported, slots = self._engines.turns.reported, self._engines.slots_by_job()
        for job_id in turns.keys() | reported.keys():
            # Before a job has an engine, its slots are unknown, and every turn more counts as an engine.
            own = slots.get(job_id, JobSlots(num_engines=0, num_slots=1))
            reported_engines = engines_for(reported.get(job_id, 0), own.num_slots)
            wanted = engines_for(turns.get(job_id, 0), own.num_slots)
            if is_demand_news(reported_engines, wanted, own.num_engines):
                return True
        return False

    async def _report(self, turns: Mapping[UUID, int]) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            if await gateway_turns_set(connection, self._membership.epoch, turns):
                await scheduler_notify(connection, "turns")
                self._engines.turns.reported = turns

    async def _book(self, read_again: Mapping[UUID, int]) -> None:
        try:
            async with self._pool.connection() as connection:
                await read_again_book(connection, read_again)
        except BaseException:
            self._engines.read_again.give_back(read_again)
            raise
