"""The machines that train together with this one, as their leader sees them.

It accepts connections at the machine's rendezvous and keeps only members that prove themselves. Each gets a
`GangMember`, which has the machine's reports and, once it is gone, the reason.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow_workers.train.distributed.gang_handshake import ANSWER_S, NotAdmitted, member_admit
from seamlessflow_workers.train.distributed.rank_commands import (
    PhaseBegun,
    Refused,
    Release,
    command_send,
    report_receive,
)
from seamlessflow_workers.train.step_engine import RankGone

logger = logging.getLogger(__name__)

_NOTICE_S = 1.0  # between a failed collective and the end of the connection that explains it
_NUM_HANDSHAKES = 16


class JoinedMember(NamedTuple):
    """A machine that has joined the gang."""

    connection: socket.socket
    num_devices: int


class GangMember:
    """The connection to another machine's trainer, read by its own thread for as long as it lives."""

    def __init__(
        self, name: str, joined: JoinedMember, gang_id: UUID, *, on_news: Callable[[], object]
    ) -> None:
        """`on_news` is called from the thread."""
        self.name = name
        self.connection = joined.connection
        self.num_devices = joined.num_devices  # that it trains on
        self.present_in = gang_id  # the last gang whose phase has begun there
        self._reason = ""
        self._gone = threading.Event()
        self._on_news = on_news
        threading.Thread(target=self._listen, name=f"member-{name}", daemon=True).start()

    @property
    def has_said_why(self) -> bool:
        """Whether the member reported a reason before it ended."""
        return bool(self._reason)

    def loss(self, *, wait: bool = True) -> str | None:
        """Return in one sentence why the member is gone; None while it is there. `wait`: a moment for it to show."""
        if not self._gone.wait(_NOTICE_S if wait else 0.0):
            return None
        return self._reason or f"the trainer of {self.name}, which trains with this one, is gone"

    def _listen(self) -> None:
        try:
            while True:
                match report_receive(self.connection):
                    case PhaseBegun(gang_id=gang_id):
                        self.present_in = gang_id
                    case Refused(reason=reason):
                        self._reason = f"{self.name} {reason}"
                self._on_news()
        except RankGone as error:
            logger.warning("%s: %s", self.name, error)
        self._gone.set()
        self._on_news()


async def members_gather(
    listening: socket.socket, gang: GangOrder, drained: asyncio.Event
) -> dict[int, JoinedMember] | None:
    """Return machines by member once all have joined; None if drained first. Strangers are rejected."""
    waiting_room = _WaitingRoom(gang)
    accepting = asyncio.create_task(waiting_room.accept(listening))
    drain = asyncio.create_task(drained.wait())
    complete = asyncio.create_task(waiting_room.complete.wait())
    try:
        await asyncio.wait((accepting, drain, complete), return_when=asyncio.FIRST_COMPLETED)
        if accepting.done():
            accepting.result()
        return waiting_room.close(is_complete=complete.done())
    finally:
        for task in (accepting, drain, complete):
            task.cancel()
        await asyncio.gather(accepting, drain, complete, return_exceptions=True)


class _WaitingRoom:
    def __init__(self, gang: GangOrder) -> None:
        self.admitted: dict[int, JoinedMember] = {}
        self.complete = asyncio.Event()
        self._gang = gang
        self._pool = ThreadPoolExecutor(_NUM_HANDSHAKES, thread_name_prefix="handshake")
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closed = False
        if len(gang.machines) == 1:  # no other machine trains this time
            self.complete.set()

    async def accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, address = await loop.sock_accept(listening)
            task = asyncio.create_task(self._admit(connection, address[0]))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def close(self, *, is_complete: bool) -> dict[int, JoinedMember] | None:
        """Stop admitting and return the members. Unless complete, release those who had joined and return None."""
        self._is_closed = True
        self._pool.shutdown(wait=False)
        if is_complete:
            return self.admitted
        reason = "drained before all machines of the gang had joined"
        for connection, _ in self.admitted.values():
            with contextlib.suppress(RankGone), connection:  # a member that has left already needs no release
                command_send([connection], Release(gang_id=self._gang.gang_id, reason=reason))
        return None

    async def _admit(self, connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        # So that a stranger that sends slowly does not keep a thread for long.
        deadline = loop.call_later(2 * ANSWER_S, _hang_up, connection)
        try:
            member, num_devices = await loop.run_in_executor(self._pool, member_admit, connection, self._gang)
        except NotAdmitted as error:
            logger.warning("%s was not admitted to the gang: %s", host, error)
            connection.close()
            return
        finally:
            deadline.cancel()
        if self._is_closed:
            connection.close()
            return
        if former := self.admitted.pop(member, None):
            former.connection.close()  # its trainer was restarted
        self.admitted[member] = JoinedMember(connection, num_devices)
        logger.info("%s joined", self._gang.machines[member])
        if len(self.admitted) == len(self._gang.machines) - 1:
            self.complete.set()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)
