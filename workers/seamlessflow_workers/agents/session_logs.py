"""Sends the logs of sessions to the control plane, while they run and once they have ended.

In: logs that sessions of one phase write. A log is sent when its session has ended, and before that after FIRST_S and
then ever less often, so that a session of any length is sent a few dozen times. Invariants: nothing here delays or ends
a session; at most MAX_WAITING_BYTES of ended sessions wait, and beyond that the oldest are dropped.

Logs do not go through the gateway, which is on the path of every token. Each report is the whole log so far, so no
offsets have to agree after a lost report or a restart. One log for all sessions of a phase was rejected, because the
first error of one agent would be lost between the lines of 255 others.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from uuid import UUID

from seamlessflow.core.protocol.worker import SessionLog, SessionLogs
from seamlessflow_workers.agents.session_log import SessionLogBuffer
from seamlessflow_workers.clients.http import FencedOff, RequestRefused, ServerUnavailable

POLL_S = 0.5
FIRST_S = 5.0
GROWTH = 1.25  # of the time between two reports of a session that still runs
MAX_REQUEST_BYTES = 1 << 20
MAX_REQUEST_LOGS = 256
MAX_WAITING_BYTES = 16 << 20
AWAY_PAUSE_S = 5.0

Send = Callable[[SessionLogs], Awaitable[None]]
logger = logging.getLogger(__name__)


class _Kept:
    """A log, and how much of it the control plane has."""

    def __init__(self, buffer: SessionLogBuffer) -> None:
        self.buffer = buffer
        self.is_ended = False
        self.sent_end = 0
        self._opened_s = time.monotonic()
        self._due_s = self._opened_s + FIRST_S

    @property
    def is_sent(self) -> bool:
        return self.sent_end == self.buffer.end

    def is_due(self, now_s: float) -> bool:
        return not self.is_sent and (self.is_ended or now_s >= self._due_s)

    def sent(self, log: SessionLog, now_s: float) -> None:
        self.sent_end = log.end
        self._due_s = self._opened_s + GROWTH * (now_s - self._opened_s)


class SessionLogSender:
    """Use as `async with`: leaving it sends the rest, for at most `grace_s`."""

    def __init__(self, send: Send, *, limit_bytes: int, grace_s: float = 1.0) -> None:
        self._send = send
        self._limit_bytes = limit_bytes
        self._grace_s = grace_s
        self._kept: dict[UUID, _Kept] = {}
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "SessionLogSender":
        self._sender = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        with contextlib.suppress(TimeoutError, ServerUnavailable):
            async with asyncio.timeout(self._grace_s):
                await self.send_due()

    @contextlib.contextmanager
    def open(self, session_id: UUID, *, key: str) -> Iterator[SessionLogBuffer | None]:
        """Keep what a session prints; None if its job keeps no logs."""
        if not self._limit_bytes:
            yield None
            return
        buffer = SessionLogBuffer(session_id, key=key, limit_bytes=self._limit_bytes)
        kept = self._kept[session_id] = _Kept(buffer)
        try:
            yield buffer
        finally:
            buffer.complete()
            kept.is_ended = True
            self._forget()

    async def send_due(self) -> None:
        """Send the logs that are due. Raises ServerUnavailable."""
        now_s = time.monotonic()
        due = [kept for kept in self._kept.values() if kept.is_due(now_s)]
        for batch in _requests(due):
            logs = [kept.buffer.log() for kept in batch]
            try:
                await self._send(SessionLogs(logs=logs))
            except (FencedOff, RequestRefused) as error:
                logger.warning("the logs of %d sessions were refused: %s", len(logs), error)
            for kept, log in zip(batch, logs, strict=True):
                kept.sent(log, now_s)
        self._forget()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self.send_due()
            except ServerUnavailable as error:
                logger.debug("the logs of sessions wait for the control plane: %s", error)
                await asyncio.sleep(AWAY_PAUSE_S)

    def _forget(self) -> None:
        """Drop logs that were sent, and the oldest of those that have waited for too long."""
        ended = [kept for kept in self._kept.values() if kept.is_ended]
        excess = sum(kept.buffer.num_bytes for kept in ended) - MAX_WAITING_BYTES
        for kept in ended:
            if kept.is_sent or excess > 0:
                excess -= kept.buffer.num_bytes
                del self._kept[kept.buffer.session_id]


def _requests(due: Iterable[_Kept]) -> Iterator[list[_Kept]]:
    """Divide logs into requests of a bounded size."""
    batch: list[_Kept] = []
    size = 0
    for kept in due:
        size += kept.buffer.num_bytes
        if batch and (size > MAX_REQUEST_BYTES or len(batch) == MAX_REQUEST_LOGS):
            yield batch
            batch, size = [], kept.buffer.num_bytes
        batch.append(kept)
    if batch:
        yield batch
