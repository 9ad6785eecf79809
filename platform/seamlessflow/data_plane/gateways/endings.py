"""Notifies the other gateways which sessions are over, so that they cancel turns in flight and free memory.

Takes sessions that have their outcome and are not in this process's memory; sends notifications, several sessions in
one. A notification that is lost costs tokens and nothing else: the store refuses turns of a session that is over.
"""

import asyncio
import logging
from uuid import UUID

from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, Pool
from seamlessflow.data_plane.store.gateways import (
    MAX_SESSIONS_SENT,
    SESSIONS_FAILED,
    SESSIONS_OVER,
    sessions_over_tell,
)

log = logging.getLogger(__name__)

GATHER_S = 0.05  # sessions end in bursts


class Endings:
    """One per process."""

    def __init__(self, pool: Pool, membership: Membership) -> None:
        self._pool = pool
        self._membership = membership
        self._waiting: dict[UUID, str] = {}  # with the channel that names them
        self._has_some = asyncio.Event()

    def announce(self, session_id: UUID, is_resumed: bool) -> None:
        """Notify the other gateways soon, if there are any."""
        if self._membership.has_peers:
            self._waiting[session_id] = SESSIONS_FAILED if is_resumed else SESSIONS_OVER
            self._has_some.set()

    async def run(self) -> None:
        """Notify until cancelled."""
        while True:
            await self._has_some.wait()
            await asyncio.sleep(GATHER_S)
            self._has_some.clear()
            waiting, self._waiting = self._waiting, {}
            try:
                async with self._pool.connection() as connection:
                    for channel in set(waiting.values()):
                        session_ids = [one for one, named_by in waiting.items() if named_by == channel]
                        for first in range(0, len(session_ids), MAX_SESSIONS_SENT):
                            some = session_ids[first : first + MAX_SESSIONS_SENT]
                            await sessions_over_tell(connection, channel, some)
            except DATABASE_AWAY as error:
                log.warning(
                    "the other gateways were not notified that %d sessions are over: %s", len(waiting), error
                )
