"""Finds leased sessions that their runner does not have, because the answer to a lease was lost.

A session without turns is leased to the runner again, with the same key: a second lease changes nothing. Any other was
begun and given up, so it is requeued; if its runner has only just received it, an older request may not know of it yet,
so young sessions are left alone.
"""

import logging
from collections.abc import Sequence

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import GroupLeaseRequest, LeasedGroup, LeasedSession
from seamlessflow.data_plane.gateways.membership import Membership
from seamlessflow.data_plane.groups.session_keys import SessionKeys
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.group_rows import (
    OpenGroup,
    UnheldSession,
    sessions_recall,
    sessions_unheld,
)
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

log = logging.getLogger(__name__)

YOUNG_S = 20.0  # no lease request takes as long


class LostLeases:
    """One per process."""

    def __init__(self, registry: Registry, membership: Membership, keys: SessionKeys) -> None:
        self._registry = registry
        self._membership = membership
        self._keys = keys

    async def again(
        self,
        connection: Connection,
        groups: Sequence[OpenGroup],
        claims: PhaseClaims,
        request: GroupLeaseRequest,
    ) -> list[LeasedGroup]:
        """Return the sessions to lease again, at most `max_sessions`, and requeue those that were given up.

        `groups`: the groups that the phase has leased, locked.
        """
        if request.held is None or not groups:
            return []
        unheld = await sessions_unheld(connection, [group.group_id for group in groups], held=request.held)
        unused = [one for one in unheld if self._is_unused(one)]
        given_up = [one for one in unheld if not self._is_unused(one) and one.age_s > YOUNG_S]
        await self._recall(connection, given_up, claims)
        again = unused[: max(request.max_sessions, 0)]
        if again:
            log.warning(
                "the runner of phase %s lacks %d sessions; they are leased again", claims.phase_id, len(again)
            )
        return [
            self._leased(group, sessions)
            for group in groups
            if (sessions := [one for one in again if one.group_id == group.group_id])
        ]

    def _is_unused(self, session: UnheldSession) -> bool:
        return session.num_turns == 0 and self._keys.is_known(session.session_id, session.key_digest)

    async def _recall(
        self, connection: Connection, given_up: Sequence[UnheldSession], claims: PhaseClaims
    ) -> None:
        if not given_up:
            return
        for session_id in await sessions_recall(connection, [one.session_id for one in given_up]):
            self._registry.close(session_id, is_resumed=True)
        log.warning(
            "the runner of phase %s gave up %d sessions; they are requeued", claims.phase_id, len(given_up)
        )

    def _leased(self, group: OpenGroup, sessions: Sequence[UnheldSession]) -> LeasedGroup:
        base_url = self._membership.client_url(self._membership.owner(group.group_id))
        return LeasedGroup(
            group_id=group.group_id,
            index=group.index,
            task=group.task,
            sessions=[
                LeasedSession(
                    session_id=one.session_id,
                    slot=one.slot,
                    attempt=one.attempt,
                    api_key=self._keys.key(one.session_id),
                    base_url=base_url,
                )
                for one in sessions
            ],
            evaluation_version=group.evaluation_version,
        )
