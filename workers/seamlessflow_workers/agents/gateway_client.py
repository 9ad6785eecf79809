"""The agent runner's client: leases rollout groups, reports how sessions ended, asks for waiting time, sends their
logs.

A client lives for one phase and carries its credential. Every call to the gateway waits for one that is away. A report
may be repeated, because the gateway counts it once. Logs go to the control plane, which nothing waits for.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

import aiohttp
import msgspec

from seamlessflow.core.protocol.data_plane import (
    GroupLeaseReply,
    GroupLeaseRequest,
    SessionFinish,
    SessionsEnded,
    SessionsHeldReply,
    SessionsHeldRequest,
    SessionsRefused,
)
from seamlessflow.core.protocol.worker import SessionLogs
from seamlessflow_workers.clients.http import post_json, post_until_answered

ANSWER_MARGIN_S = 30.0  # on top of the long poll
FINISH_TIMEOUT_S = 30.0
LOGS_TIMEOUT_S = 10.0


class RunnerClient:
    """Use as `async with RunnerClient(...) as client`."""

    def __init__(self, *, gateway_url: str, control_plane_url: str, credential: str) -> None:
        root = f"{gateway_url.rstrip('/')}/runner/v1"
        self._logs_url = f"{control_plane_url.rstrip('/')}/api/worker/v1/sessions/logs"
        self._lease_url = f"{root}/groups/lease"
        self._ended_url = f"{root}/sessions/ended"
        self._waited_url = f"{root}/sessions/held"
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {credential}"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def renew(self, credential: str) -> None:
        """Use this credential from the next request on."""
        self._session.headers["Authorization"] = f"Bearer {credential}"

    async def session_waited_s(self, session_id: UUID) -> float:
        """Return how long turns of a session have waited at the gateway. Raises FencedOff, RequestRefused."""
        request = SessionsHeldRequest(session_ids=[session_id])
        raw = await post_until_answered(self._session, self._waited_url, request, timeout_s=FINISH_TIMEOUT_S)
        waited = msgspec.json.decode(raw or b'{"held_s":{}}', type=SessionsHeldReply).held_s
        return waited.get(session_id, 0.0)

    async def groups_lease(self, request: GroupLeaseRequest, *, held: Sequence[UUID]) -> GroupLeaseReply:
        """Lease rollout groups. Raises FencedOff, RequestRefused.

        `held`: all sessions that the runner has. A request that is repeated states them, because the answer to the
        first one may be lost.
        """
        raw = await post_until_answered(
            self._session,
            self._lease_url,
            request,
            again=msgspec.structs.replace(request, held=list(held)),
            timeout_s=request.wait_s + ANSWER_MARGIN_S,
        )
        return GroupLeaseReply(groups=[]) if raw is None else msgspec.json.decode(raw, type=GroupLeaseReply)

    async def sessions_ended(self, finishes: Sequence[SessionFinish]) -> dict[UUID, str]:
        """Report ends; return the reasons of those that were refused. Raises FencedOff, RequestRefused."""
        request = SessionsEnded(finishes=list(finishes))
        raw = await post_until_answered(self._session, self._ended_url, request, timeout_s=FINISH_TIMEOUT_S)
        return {} if raw is None else msgspec.json.decode(raw, type=SessionsRefused).refused

    async def session_logs_send(self, logs: SessionLogs) -> None:
        """Send logs once. Raises FencedOff, RequestRefused, ServerUnavailable."""
        await post_json(self._session, self._logs_url, logs, timeout_s=LOGS_TIMEOUT_S)
