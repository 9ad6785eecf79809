"""The trainer of a machine that another one leads: it joins the leader, then executes each command on its own slice.

It takes phases of gangs of the same machines, and the leader's commands over a connection. It reports to the supervisor
(when it has joined, its activity, the end of the phase) and has no credential and no connection to a plane. If the
leader is gone, the state in memory is lost: the process exits, and the next one joins again.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from seamlessflow.core.protocol.child import Begun, Doing, Ended
from seamlessflow.core.protocol.worker import GangOrder, PhaseOrder
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.process.device_environment import trainer_devices
from seamlessflow_workers.train.control import ControlChannel, end_process
from seamlessflow_workers.train.distributed.gang_handshake import NotAdmitted, leader_join
from seamlessflow_workers.train.distributed.rank_commands import (
    Command,
    LeaderState,
    Load,
    PhaseBegun,
    Publish,
    Refused,
    Release,
    Restore,
    Save,
    Step,
    carry_out,
    command_receive,
    report_send,
)
from seamlessflow_workers.train.step_engine import DeviceUse, ModelLoadError, RankGone, StepEngine

logger = logging.getLogger(__name__)

_CONNECT_S = 10.0
_NOTICE_S = 1.0
_AWAITING_LEADER = Doing(state=LedgerState.IDLE, cause=IdleCause.AWAITING_GANG)
_T = TypeVar("_T")
Follow = Callable[
    [Load, socket.socket], StepEngine
]  # runs in the thread that later computes; raises ModelLoadError


class GangFollower:
    """One per process, instead of a `Trainer`."""

    is_stepping = False  # the leader gives up steps, and this process exits with it
    is_discarded = False

    def __init__(self, *, executor: Executor, channel: ControlChannel, follow: Follow) -> None:
        """`follow` loads the engine of this machine, once the leader has sent how."""
        self._executor = executor
        self._channel = channel
        self._follow_engine = follow
        self._connection: socket.socket | None = None
        self._engine: StepEngine | None = None
        self._use = DeviceUse()  # since the leader last ordered the states to be moved
        self._loop = asyncio.get_running_loop()

    async def run_phase(self, order: PhaseOrder, drained: asyncio.Event) -> str:
        """Follow until the leader says that the phase is over; returns why. Raises RankGone, ModelLoadError."""
        assert order.gang is not None
        self._say(_AWAITING_LEADER)
        try:
            if self._connection is None:
                if not await self._join(order.gang, drained):
                    return "drained before the leading machine had let it join"
            else:
                self._loop.remove_reader(self._connection)
                report_send(self._connection, PhaseBegun(gang_id=order.gang.gang_id))
            self._channel.send(Begun(phase_id=order.phase_id))
            self._say(_AWAITING_LEADER)
            reason = await self._off_loop(self._follow)
        except RankGone as error:
            if drained.is_set():
                await self._leave("the leading machine has ended", order)
            raise RankGone(f"{order.gang.machines[0]}, which leads this machine, is gone: {error}") from error
        self._watch()
        return reason

    async def device_leave(self) -> DeviceUse:
        """Report the memory that stays in use: the leader ordered the states to be moved before it ended the phase."""
        return self._use

    def renew(self, credential: str) -> None:
        """Do nothing: a follower has no credential."""

    async def _join(self, gang: GangOrder, drained: asyncio.Event) -> bool:
        """Join the leader; return False if drained first. Raises RankGone."""
        host, _, port = gang.address.rpartition(":")
        try:
            connection = await self._off_loop(
                lambda: socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S)
            )
        except (OSError, ValueError) as error:
            raise RankGone(
                f"it cannot be reached at {gang.address!r} ({error}); see --listen-host and --advertised-host of "
                "its supervisor"
            ) from error
        num_devices = len(trainer_devices(os.environ)) or 1
        joining = asyncio.ensure_future(
            self._off_loop(lambda: leader_join(connection, gang, num_devices=num_devices))
        )
        drain = asyncio.create_task(drained.wait())
        await asyncio.wait((joining, drain), return_when=asyncio.FIRST_COMPLETED)
        drain.cancel()
        if not joining.done():
            connection.shutdown(socket.SHUT_RDWR)
        try:
            await joining
        except NotAdmitted as error:
            connection.close()
            if drained.is_set():
                return False
            raise RankGone(str(error)) from error
        self._connection = connection
        return True

    def _follow(self) -> str:
        """Follow the leader in the thread that computes. Raises RankGone, ModelLoadError."""
        assert self._connection is not None
        while True:
            match command_receive(self._connection):
                case Release(reason=reason):
                    return reason
                case LeaderState(state=LedgerState.IDLE, cause=cause):
                    self._say_soon(Doing(state=LedgerState.IDLE, cause=cause))
                case LeaderState():
                    continue  # it works alone; it orders whatever it needs of this machine
                case Load() as load:
                    self._load(load)
                case command:
                    self._carry_out(command)

    def _load(self, load: Load) -> None:
        assert self._connection is not None
        self._say_soon(Doing(state=LedgerState.STARTING))
        try:
            self._engine = self._follow_engine(load, self._connection)
        except ModelLoadError as error:
            report_send(self._connection, Refused(reason=str(error)))
            raise
        self._say_soon(_AWAITING_LEADER)

    def _carry_out(self, command: Command) -> None:
        if self._engine is None:
            raise RankGone(f"it ordered {type(command).__name__} before anything was loaded")
        if isinstance(command, Step):
            self._say_soon(Doing(state=LedgerState.TRAINING))
        elif isinstance(command, Publish | Save | Restore):
            self._say_soon(Doing(state=LedgerState.SYNCING))
        try:
            self._use = carry_out(command, self._engine) or self._use
        except RuntimeError as error:
            if not self._is_leader_gone():
                raise
            raise RankGone(str(error).splitlines()[0]) from error  # the collective failed without the others
        self._say_soon(_AWAITING_LEADER)

    def _is_leader_gone(self) -> bool:
        """Whether the leader is gone, which would explain a failure. The connection may end a moment later."""
        assert self._connection is not None
        self._connection.settimeout(_NOTICE_S)
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _watch(self) -> None:
        """Watch the leader between phases: without it, the state in this process is useless."""
        assert self._connection is not None
        if self._engine is None:  # they never trained together, so the next gang may have another leader
            self._connection.close()
            self._connection = None
        else:
            self._loop.add_reader(self._connection, self._look, self._connection)

    def _look(self, connection: socket.socket) -> None:
        try:
            is_gone = not connection.recv(1, socket.MSG_PEEK)
        except OSError:
            is_gone = True
        if is_gone:
            end_process(0, "the leading machine has ended its trainer")
        self._loop.remove_reader(connection)  # the leader's next phase has begun before this machine's

    async def _leave(self, reason: str, order: PhaseOrder) -> None:
        """Report the requested end of the phase instead of the leader, and exit."""
        self._channel.send(Ended(phase_id=order.phase_id, reason=reason))
        await self._channel.flush()
        end_process(0, reason)

    def _say(self, doing: Doing) -> None:
        self._channel.send(doing)

    def _say_soon(self, doing: Doing) -> None:
        self._loop.call_soon_threadsafe(self._say, doing)

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._executor, work)
