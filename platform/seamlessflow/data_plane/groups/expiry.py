"""Ends external sessions that have gone silent, and finalizes groups in which no client opens sessions any more.

Every second it postpones the expiry of sessions that sent requests or have turns in flight. It ends expired sessions as
if they had been closed: with the reward reported so far, or as a failed attempt without one. It finalizes a group with
the outcomes it has if no client has opened its free slots for as long. Any number of gateways may do this, because rows
under locks decide everything.

Time in which no gateway could record requests does not count as silence: after its start, and after the database was
unreachable, a gateway first listens for `LISTEN_S` or the time to live, whichever is shorter.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.data_plane.groups.finalization import GroupNews, groups_finalize
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Pool
from seamlessflow.data_plane.store.groups.finalization import groups_lock
from seamlessflow.data_plane.store.groups.group_rows import job_lock
from seamlessflow.data_plane.store.groups.silence import (
    SilentSession,
    groups_given_up,
    sessions_renew,
    sessions_silent,
    silent_lock,
)
from seamlessflow.data_plane.store.jobs import job_read
from seamlessflow.data_plane.store.turns.sessions import SessionOutcome, sessions_end
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

log = logging.getLogger(__name__)

POLL_S = 1.0
LISTEN_S = 10.0
LEAST_GROUP_SILENCE_S = (
    30.0  # a harness needs a moment to open another attempt, even if sessions expire sooner
)


class Expiry:
    """One per process."""

    def __init__(self, pool: Pool, registry: Registry, news: GroupNews, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._registry = registry
        self._news = news
        self._clock = clock
        self._spoken: dict[UUID, float] = {}  # sessions whose expiry must be postponed → their time to live
        self._heard_since_s: float | None = None

    async def run(self) -> None:
        """Poll until cancelled. If the database is unreachable, log it and try again."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self._renew()
                await self._expire()
            except DATABASE_AWAY as error:
                self._heard_since_s = None
                log.warning("no session expires, the database is unreachable: %s", str(error).strip())

    async def _renew(self) -> None:
        self._spoken |= self._registry.sessions_spoken()
        if self._spoken:
            async with self._pool.connection() as connection:
                again, over = await sessions_renew(connection, self._spoken)
            for session_id in over:  # another gateway has ended it
                self._registry.close(session_id)
            self._spoken = {session_id: self._spoken[session_id] for session_id in again}

    async def _expire(self) -> None:
        now_s = self._clock()
        if self._heard_since_s is None:
            self._heard_since_s = now_s
        heard_for_s = now_s - self._heard_since_s
        async with self._pool.connection() as connection:
            silent = await sessions_silent(connection, heard_for_s=heard_for_s, listen_s=LISTEN_S)
            given_up = await groups_given_up(
                connection, heard_for_s=heard_for_s, listen_s=LISTEN_S, least_s=LEAST_GROUP_SILENCE_S
            )
        for job_id, sessions in itertools.groupby(sorted(silent, key=_job_of), key=_job_of):
            if (spec := await self._spec(job_id)) is not None:
                await self._end(job_id, spec, list(sessions))
        for job_id, groups in itertools.groupby(
            sorted(given_up, key=lambda row: row[1]), key=lambda row: row[1]
        ):
            if (spec := await self._spec(job_id)) is not None:
                await self._give_up(job_id, spec, [group_id for group_id, _ in groups])

    async def _spec(self, job_id: UUID) -> JobSpec | None:
        async with self._pool.connection() as connection:
            row = await job_read(connection, job_id)
        try:
            return None if row is None else job_spec_parse(row.spec)
        except InvalidJobSpec as error:
            log.warning("silent sessions of job %s stay open: %s", job_id, error)
            return None

    async def _end(self, job_id: UUID, spec: JobSpec, silent: Sequence[SilentSession]) -> None:
        reason = f"expired: it was silent for {spec.environment.session_ttl_s:g} s"
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, job_id)
            locked = await groups_lock(connection, list({session.group_id for session in silent}))
            rewards = await silent_lock(connection, [session.session_id for session in silent])
            outcomes = {
                session_id: SessionOutcome(reward, "" if reward is not None else reason)
                for session_id, reward in rewards.items()
            }
            await sessions_end(connection, outcomes)
            finalized = await groups_finalize(connection, locked, spec)
        for session_id in outcomes:
            self._registry.close(session_id)
        self._news.announce(job_id, finalized.values())
        log.info("%d silent sessions of job %s expired", len(outcomes), job_id)

    async def _give_up(self, job_id: UUID, spec: JobSpec, group_ids: Sequence[UUID]) -> None:
        """Finalize groups under the job's lock, so that no client can open a session in them meanwhile."""
        async with self._pool.connection() as connection, connection.transaction():
            await job_lock(connection, job_id)
            locked = await groups_lock(connection, group_ids)
            finalized = await groups_finalize(connection, locked, spec, are_given_up=True)
        self._news.announce(job_id, finalized.values())


def _job_of(session: SilentSession) -> UUID:
    return session.job_id
