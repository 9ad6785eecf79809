"""Reports the ends of sessions to the gateway, several in one request.

The end that completes a group is reported within GATHER_S, since training may wait for it, and so is a session that was
cut short. What ends beside it goes with it, because a gateway's answers come several at a time; others wait a moment
for it, and sessions that end during a request go with the next one. An end that the gateway refuses is reported as a
failure, because the session would stay open, and the gateway would have it run again as often as its end is refused.
Invariant: this runner reports each end once, in the order in which it was added, and a refused one once more.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents.episode import MAX_FAILURE_CHARACTERS
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.clients.http import FencedOff, RequestRefused

PATIENCE_S = 0.1
GATHER_S = 0.005
MAX_PER_REQUEST = 256

logger = logging.getLogger(__name__)


class Reports:
    """`on_delivered` is called when reports have been delivered, whatever the gateway answered."""

    def __init__(self, client: RunnerClient, *, on_delivered: Callable[[], None]) -> None:
        self._client = client
        self._on_delivered = on_delivered
        self._ends: list[SessionFinish] = []
        self._is_urgent = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return how many reports have not been delivered."""
        return len(self._ends)

    @property
    def session_ids(self) -> list[UUID]:
        """The sessions whose reports have not been delivered."""
        return [finish.session_id for finish in self._ends]

    def add(self, finish: SessionFinish, *, is_urgent: bool) -> None:
        self._ends.append(finish)
        if is_urgent:
            self._is_urgent.set()
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def flush(self, *, timeout_s: float) -> None:
        """Send the remaining reports at once, and give up those that are not delivered within `timeout_s`."""
        self._is_urgent.set()
        if self._sender is None:
            return
        _, late = await asyncio.wait([self._sender], timeout=timeout_s)
        for sender in late:
            logger.warning("%d ends of sessions could not be reported: the gateway is away", len(self._ends))
            sender.cancel()
            await asyncio.wait(late)

    async def _send(self) -> None:
        try:
            while self._ends:
                await self._gather()
                ends = self._ends[:MAX_PER_REQUEST]
                refused = await self._deliver(ends)
                self._ends[: len(ends)] = [
                    _failed(end, refused[end.session_id]) for end in ends if _was_refused(end, refused)
                ]
                self._on_delivered()
        finally:
            self._sender = None

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._is_urgent.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_S)
        if len(self._ends) <= MAX_PER_REQUEST:
            self._is_urgent.clear()

    async def _deliver(self, ends: list[SessionFinish]) -> Mapping[UUID, str]:
        """Return why the gateway refused ends. Once the phase is over, none is worth sending again."""
        try:
            refused = await self._client.sessions_ended(ends)
        except (FencedOff, RequestRefused) as error:
            refused = {finish.session_id: str(error) for finish in ends}
            _warn(refused)
            return {} if isinstance(error, FencedOff) else refused
        _warn(refused)
        return refused


def _warn(refused: Mapping[UUID, str]) -> None:
    for session_id, reason in refused.items():
        logger.warning("the end of session %s was not accepted: %s", session_id, reason)


def _was_refused(end: SessionFinish, refused: Mapping[UUID, str]) -> bool:
    """Whether the end was refused for its content. That of a failure is not sent a second time."""
    return end.session_id in refused and end.failure is None


def _failed(end: SessionFinish, reason: str) -> SessionFinish:
    failure = f"the gateway refused how it ended: {reason}"
    return SessionFinish(session_id=end.session_id, failure=failure[:MAX_FAILURE_CHARACTERS])
