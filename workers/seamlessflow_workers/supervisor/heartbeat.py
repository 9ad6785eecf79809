"""The conversation with the control plane: one heartbeat after another, never two at a time.

It takes a function that builds the present heartbeat, one that receives the answer, and wake-ups (the doorbell, a
change) in between. It sends `POST /api/worker/v1/heartbeat` every `interval_s` of the last answer and soon after a
wake-up. Invariant: whatever the control plane does or fails to do, running work is neither ended nor delayed.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import aiohttp
import msgspec

from seamlessflow.core.protocol.worker import Heartbeat, HeartbeatReply
from seamlessflow_workers.process.backoff import Backoff

FIRST_INTERVAL_S = 1.0
SPACING_S = 0.005  # wake-ups within it cause one heartbeat
TIMEOUT_S = 10.0
LONGEST_BACKOFF_S = 5.0
SHOWN_CHARACTERS = 200

log = logging.getLogger(__name__)


class HeartbeatRefused(RuntimeError):
    """The control plane answered with an error."""


class HeartbeatLink:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        control_plane_url: str,
        token: str,
        build: Callable[[], Heartbeat],
        take: Callable[[HeartbeatReply], None],
    ) -> None:
        self._session = session
        self._url = f"{control_plane_url}/api/worker/v1/heartbeat"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._build = build
        self._take = take
        self._woken = asyncio.Event()
        self._interval_s = FIRST_INTERVAL_S
        self._last_sent_s = 0.0
        self._is_reachable = True

    def wake(self, *, within_s: float = 0.0) -> None:
        """Send the next heartbeat now, or after `within_s`; several wake-ups before it cause only one."""
        if within_s > 0:
            asyncio.get_running_loop().call_later(within_s, self._woken.set)
        else:
            self._woken.set()

    async def run(self) -> None:
        backoff = Backoff(first_s=0.2, longest_s=LONGEST_BACKOFF_S)
        while True:
            wait_s = self._interval_s
            try:
                await self.send()
                backoff.reset()
                self._note_reachable()
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, HeartbeatRefused) as error:
                wait_s = backoff.next_s()
                self._note_unreachable(error)
            await self._rest(wait_s)

    async def send(self, *, timeout_s: float = TIMEOUT_S) -> None:
        """Send one heartbeat and take its answer. Raises on any failure."""
        self._woken.clear()
        self._last_sent_s = time.monotonic()
        body = msgspec.json.encode(self._build())
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._session.post(
            self._url, data=body, headers=self._headers, timeout=timeout
        ) as response:
            answer = await response.read()
            if response.status != 200:
                shown = answer[:SHOWN_CHARACTERS].decode(errors="replace")
                raise HeartbeatRefused(f"HTTP {response.status}: {shown}")
        reply = msgspec.json.decode(answer, type=HeartbeatReply)
        self._interval_s = reply.interval_s
        self._take(reply)

    async def _rest(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return
        since_s = time.monotonic() - self._last_sent_s
        await asyncio.sleep(max(SPACING_S - since_s, 0.0))

    def _note_reachable(self) -> None:
        if not self._is_reachable:
            log.info("the control plane answers again")
        self._is_reachable = True

    def _note_unreachable(self, error: Exception) -> None:
        if self._is_reachable:
            log.warning(
                "no answer to heartbeats from %s (%s); running work continues",
                self._url,
                f"{type(error).__name__}: {error}",
            )
        self._is_reachable = False
