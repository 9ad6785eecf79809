"""One helper process, as the gateway sees it: frames go in, replies come out in the same order.

`helpers` sends it works; it reports which work each reply answers, and once that it is gone. Several works may be under
way, so that a helper finds the next one in its pipe and neither side sleeps in between. The first of them is the one
that the helper makes now. Invariants: replies come in the order of the works; after `on_gone` nothing is reported any
more.
"""

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import cast

import msgspec

from seamlessflow.data_plane.turns.rendering.helper import LENGTH, HelperOutcome, HelperReply
from seamlessflow.data_plane.turns.rendering.prompt import AskedPrompt, Prompt

log = logging.getLogger(__name__)

MODULE = "seamlessflow.data_plane.turns.rendering.helper"
MAX_UNDER_WAY = 8  # works at one helper
MAX_BYTES_UNDER_WAY = 64 << 10  # of their bodies, beside the first
_STDIN, _STDOUT = 0, 1
_decode = msgspec.msgpack.Decoder(HelperReply).decode


@dataclass(slots=True, eq=False)
class Work:
    """One prompt to make. `num_deaths`: how many helpers died while they made it."""

    job: Hashable
    asked: AskedPrompt
    answer: "asyncio.Future[Prompt]"
    num_deaths: int = 0


class HelperProcess(asyncio.SubprocessProtocol):
    """Starting → alive → gone. `under_way` has None for a work that was given to another helper."""

    def __init__(
        self,
        on_reply: "Callable[[HelperProcess, Work | None, HelperReply], None]",
        on_gone: "Callable[[HelperProcess], None]",
    ) -> None:
        self.under_way: deque[Work | None] = deque()
        self.num_replies = 0
        self.is_tokenising = False  # the work that is made now
        self.is_slow = False  # the watch has seen the work that is made now before
        self.has_overrun = False
        # The number of replies, the processor time and the clock when the watch first saw the work that is made now.
        self.seen: tuple[int, float, float] = (-1, 0.0, 0.0)
        self._on_reply = on_reply
        self._on_gone = on_gone
        self._unread = b""
        self._num_bytes = 0
        self._is_gone = False
        self._exited = asyncio.Event()
        self._transport: asyncio.SubprocessTransport
        self._stdin: asyncio.WriteTransport

    async def start(self, memory_mb: int) -> None:
        """Start the process. Raises OSError."""
        await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            *(sys.executable, "-m", MODULE, str(os.getpid()), str(memory_mb)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
        )

    @property
    def pid(self) -> int:
        return self._transport.get_pid() or 0

    @property
    def has_room(self) -> bool:
        """Whether a further work may wait in its pipe."""
        if not self.under_way:
            return True
        is_full = len(self.under_way) >= MAX_UNDER_WAY or self._num_bytes > MAX_BYTES_UNDER_WAY
        return not (is_full or self.is_slow)

    def send(self, work: Work) -> None:
        body = work.asked.body
        self._num_bytes += len(body) if self.under_way else 0
        self.under_way.append(work)
        # A process that has just died is noticed by its output; then this work goes to another one.
        if not self._stdin.is_closing():
            self._stdin.write(LENGTH.pack(len(body)) + body)

    def take_back(self) -> list[Work]:
        """Return the works that wait behind the first; the helper's replies to them are ignored."""
        first, *others = self.under_way
        self.under_way = deque([first, *(None for _ in others)])
        return [work for work in others if work is not None]

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    def close(self) -> None:
        """End the process; nothing is reported any more."""
        self._is_gone = True
        self._transport.close()

    @property
    def has_ended(self) -> bool:
        return self._exited.is_set()

    async def ended(self) -> None:
        """Wait until the system knows the process no more."""
        await self._exited.wait()

    def process_exited(self) -> None:
        self._exited.set()

    def connection_made(self, transport: asyncio.SubprocessTransport) -> None:  # type: ignore[override]
        self._transport = transport
        self._stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(_STDIN))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._unread += data
        at, num_unread = 0, len(self._unread)
        while not self._is_gone and num_unread - at >= LENGTH.size:
            begin = at + LENGTH.size
            end = begin + LENGTH.unpack_from(self._unread, at)[0]
            if end > num_unread:
                break
            at = end
            self._read(self._unread[begin:end])
        self._unread = self._unread[at:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT:  # all that it has written was read
            self._end()

    def _end(self) -> None:
        if not self._is_gone:
            self.close()
            self._on_gone(self)

    def _read(self, frame: bytes) -> None:
        try:
            reply = _decode(frame)
        except msgspec.DecodeError:
            log.exception("a prompt helper wrote what is no reply; its process is killed")
            self._end()
            return
        self._replied(reply)

    def _replied(self, reply: HelperReply) -> None:
        if reply.outcome is HelperOutcome.TOKENISING:
            self.is_tokenising = True
            return
        work = self.under_way.popleft()
        self.num_replies += 1
        self.is_tokenising = self.is_slow = False
        self._num_bytes = sum(len(one.asked.body) for one in list(self.under_way)[1:] if one is not None)
        self._on_reply(self, work, reply)
