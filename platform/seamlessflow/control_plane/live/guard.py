"""Checks at intervals whether the owners of open sockets may still listen, and ends the sockets of those who may not.

Takes sockets with the credentials that opened them. Calls a socket's `end` with a close code: 4401 if the credential is
no longer valid, 4403 if its owner lost a project or a pool. Invariant: one look-up serves all sockets of the process,
so a thousand of them cost as many queries as one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.db import DatabaseError

from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.cluster.selectors import pools_visible
from seamlessflow.control_plane.live.access import Credential, accesses_now

UNAUTHORIZED = 4401
FORBIDDEN = 4403
CHECK_EVERY_S = 2.0  # a socket ends within 5 s of the revocation, a slow look-up included
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Guarded:
    """One signed-in socket. `pools`: those whose machines it listens to; None before it listens to any."""

    credential: Credential
    access: Access
    end: Callable[[str, int], Awaitable[None]]
    pools: frozenset[str] | None = None


class Guard:
    def __init__(self) -> None:
        self._sockets: set[Guarded] = set()

    def add(self, socket: Guarded) -> None:
        self._sockets.add(socket)

    def discard(self, socket: Guarded | None) -> None:
        if socket is not None:
            self._sockets.discard(socket)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                await self.check()
            except DatabaseError as error:
                _log.warning("open sockets are not looked at while the database is away: %s", error)

    async def check(self) -> None:
        """End the sockets of those who may no longer listen."""
        sockets = list(self._sockets)
        if not sockets:
            return
        for socket, (detail, code) in (await database_sync_to_async(_closings)(sockets)).items():
            self._sockets.discard(socket)
            await socket.end(detail, code)


def _closings(sockets: list[Guarded]) -> dict[Guarded, tuple[str, int]]:
    accesses = accesses_now({socket.credential for socket in sockets})
    pools = {
        one: pools_visible(access=accesses[one])
        for one in {socket.credential for socket in sockets if socket.pools is not None}
        if one in accesses
    }
    closings = {}
    for socket in sockets:
        access = accesses.get(socket.credential)
        if access is None:
            closings[socket] = ("the token or the session that opened this socket has ended", UNAUTHORIZED)
        elif socket.access.readable - access.readable:
            closings[socket] = ("a project is no longer open to you", FORBIDDEN)
        elif socket.pools is not None and socket.pools - pools[socket.credential]:
            closings[socket] = ("machines are no longer open to you", FORBIDDEN)
        else:
            socket.access = access
    return closings
