"""The gateway's periodic work: the engine table, ended jobs, leases of groups with active sessions, abandoned turns."""

import asyncio
import logging
from collections.abc import Callable

from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.store.batches.batch_rows import batches_applied_note
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Pool
from seamlessflow.data_plane.store.groups.evaluations import evaluations_cancel
from seamlessflow.data_plane.store.groups.group_rows import groups_renew
from seamlessflow.data_plane.store.jobs import engines_read, jobs_ended_and_waiting
from seamlessflow.data_plane.store.turns.protocol import TurnRefused
from seamlessflow.data_plane.turns.engines.pool import EnginePool
from seamlessflow.data_plane.turns.engines.watch import EngineWatch
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession, Partial
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry
from seamlessflow.data_plane.turns.trajectory_manager.turn import turn_partial_rows

log = logging.getLogger(__name__)

POLL_S = 1.0
RENEW_EVERY = 20  # polls


class Maintenance:
    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        registry: Registry,
        engines: EnginePool,
        watch: EngineWatch,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._registry = registry
        self._engines = engines
        self._watch = watch
        self._clock = clock

    async def run(self) -> None:
        """Poll until cancelled. If the database is unreachable, log it and try again."""
        try:
            await self._poll()
        finally:
            for job in self._registry.jobs:
                self._registry.stop(job.job_id)

    async def _poll(self) -> None:
        num_polls = 0
        while True:
            await asyncio.sleep(POLL_S)
            num_polls += 1
            try:
                await self.refresh()
                await self._cancel_evaluations()
                if num_polls % RENEW_EVERY == 0:
                    await self._renew()
                await self._expire_partials()
            except DATABASE_AWAY as error:
                log.warning("the database is unreachable: %s", str(error).strip())

    async def refresh(self) -> None:
        """Read the engine table, note which jobs are over or wait, and mark published batches as applied."""
        jobs = {job.job_id: job for job in self._registry.jobs}
        async with self._pool.connection() as connection:
            engines = await engines_read(connection, secret=self._settings.secret_key)
            ended, reasons = await jobs_ended_and_waiting(connection, list(jobs)) if jobs else (set(), {})
            await batches_applied_note(connection)
        for job_id in ended:
            if not jobs[job_id].is_over:
                jobs[job_id].is_over = True
                self._registry.stop(job_id)
        self._engines.jobs_over, self._engines.reasons = ended, reasons
        self._watch.table_set(engines)
        self._engines.table_set(engines)

    async def _cancel_evaluations(self) -> None:
        async with self._pool.connection() as connection:
            await evaluations_cancel(connection)

    async def _renew(self) -> None:
        spoken = list(self._registry.groups_spoken())
        if spoken:
            async with self._pool.connection() as connection:
                await groups_renew(connection, spoken, self._settings.group_lease_s)

    async def _expire_partials(self) -> None:
        """Record turns whose clients did not retry, so that people can see them; they never train."""
        now_s = self._clock()
        for session in self._registry.sessions:
            for digest, kept in list(session.partials.items()):
                is_due = kept[0].expires_at_s <= now_s and kept[0].turn.growing is None
                if is_due and (partial := session.take_partial(digest)) is not None:
                    await self._record(session, partial, now_s)

    async def _record(self, session: LiveSession, partial: Partial, now_s: float) -> None:
        rows = turn_partial_rows(partial.turn, duration_s=now_s - partial.turn.started_s)
        try:
            await self._registry.store.commit(rows)
        except TurnRefused:
            log.warning("a partial turn of session %s could not be recorded", session.key.session_id)
            self._registry.forget(session.key.session_id)
