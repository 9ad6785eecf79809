"""The trainer of the machine that leads a gang: it waits for all machines, then trains like any other trainer.

It takes phases of gangs of the same machines, one after another, and does what `trainer.Trainer` does. To the other
machines it sends the calls of its engine, its ledger state, and the end of each phase. The engine is made when the
machines first come together: a process never trains with machines other than its first ones.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Protocol

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.child import Begun, Doing
from seamlessflow.core.protocol.worker import GangOrder, PhaseOrder, WarmProcess
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.train.control import ControlChannel, end_process
from seamlessflow_workers.train.distributed.gang_members import GangMember, members_gather
from seamlessflow_workers.train.distributed.rank_commands import Command, LeaderState, Release, command_send
from seamlessflow_workers.train.main import OpenOffers
from seamlessflow_workers.train.step_engine import DeviceUse, RankGone, StepEngine
from seamlessflow_workers.train.trainer import Trainer
from seamlessflow_workers.weights.artifacts import JobArtifacts

logger = logging.getLogger(__name__)

EXIT_MEMBER_LOST = 4
LAST_WORD_S = 3.0


class Lead(Protocol):
    """Loads the engine of the leading machine and orders the members to load theirs. Raises ModelLoadError,
    RankGone."""

    def __call__(
        self,
        model_path: Path,
        spec: JobSpec,
        *,
        members: Sequence[GangMember],
        listen_host: str,
        artifacts: Path | None,
    ) -> StepEngine: ...


class GangLeader:
    """One per process, instead of its `Trainer`."""

    def __init__(
        self,
        *,
        warm_process: WarmProcess,
        spec: JobSpec,
        executor: Executor,
        channel: ControlChannel,
        listening: socket.socket,
        lead: Lead,
        open_offers: OpenOffers,
    ) -> None:
        self._warm_process = warm_process
        self._spec = spec
        self._executor = executor
        self._channel = channel
        self._listening = listening
        self._lead = lead
        self._open_offers = open_offers
        self._members: list[GangMember] = []
        self._news = asyncio.Event()  # of a member, for `run_phase`
        self._report_event = asyncio.Event()  # the same, for `_await_members`
        self._is_at_work = False
        self._trainer: Trainer | None = None
        self._gang: GangOrder | None = None  # of the present phase
        self._is_discarded = False

    async def run_phase(self, order: PhaseOrder, drained: asyncio.Event) -> str:
        """Run a phase like `Trainer.run_phase`, once all machines are there. Raises ModelLoadError and RankGone too."""
        self._gang = order.gang
        working = asyncio.create_task(self._work(order, drained))
        self._is_at_work = True
        try:
            while not working.done():
                self._news.clear()
                if (lost := self._lost_member()) is not None:
                    # The cause may also break the work here, which can report it better.
                    await asyncio.wait({working}, timeout=0.0 if lost.has_said_why else LAST_WORD_S)
                    if not working.done():
                        raise RankGone(lost.loss())
                    break
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait((working, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
            return working.result()
        finally:
            working.cancel()

    async def _work(self, order: PhaseOrder, drained: asyncio.Event) -> str:
        self._channel.send(Doing(state=LedgerState.IDLE, cause=IdleCause.AWAITING_GANG))
        is_complete = await (self._await_members if self._members else self._gather_members)(drained)
        if not is_complete:
            return "drained before all machines of the gang had joined"
        self._channel.send(Begun(phase_id=order.phase_id))
        if self._trainer is None:
            self._report(Doing(state=LedgerState.STARTING))
            self._trainer = await self._make_trainer()
        self._trainer.is_discarded = self._is_discarded
        return await self._trainer.run_phase(order, drained)

    async def device_leave(self) -> DeviceUse:
        """Leave the accelerator and end the phase on the other machines too."""
        use = DeviceUse()
        if self._trainer is not None:
            use = await self._trainer.device_leave()
        assert self._gang is not None
        reason = "the leading machine has ended the phase"
        await asyncio.wrap_future(self._send(Release(gang_id=self._gang.gang_id, reason=reason)))
        self._is_at_work = False
        asyncio.get_running_loop().call_soon(self._look)  # after the end of the phase has been reported
        return use

    def renew(self, credential: str) -> None:
        if self._trainer is not None:
            self._trainer.renew(credential)

    @property
    def is_stepping(self) -> bool:
        return self._trainer is not None and self._trainer.is_stepping

    @property
    def is_discarded(self) -> bool:
        return self._is_discarded

    @is_discarded.setter
    def is_discarded(self, value: bool) -> None:
        self._is_discarded = value
        if self._trainer is not None:
            self._trainer.is_discarded = value

    async def _gather_members(self, drained: asyncio.Event) -> bool:
        assert self._gang is not None
        admitted = await members_gather(self._listening, self._gang, drained)
        if admitted is None:
            return False
        loop = asyncio.get_running_loop()
        self._members = [
            GangMember(
                self._gang.machines[number],
                admitted[number],
                self._gang.gang_id,
                on_news=lambda: loop.call_soon_threadsafe(self._look),
            )
            for number in sorted(admitted)
        ]
        return True

    async def _await_members(self, drained: asyncio.Event) -> bool:
        """Wait until every connected member has reported that its phase has begun; return False if drained first."""
        assert self._gang is not None
        gang_id = self._gang.gang_id
        drain = asyncio.create_task(drained.wait())
        try:
            while not drained.is_set():
                self._report_event.clear()
                if all(member.present_in == gang_id for member in self._members):
                    return True
                reported = asyncio.create_task(self._report_event.wait())
                await asyncio.wait((reported, drain), return_when=asyncio.FIRST_COMPLETED)
                reported.cancel()
        finally:
            drain.cancel()
        return False

    def _look(self) -> None:
        """React to a report or the loss of a member. Between phases nothing else would notice a loss."""
        self._news.set()
        self._report_event.set()
        if not self._is_at_work and (lost := self._lost_member()) is not None:
            end_process(EXIT_MEMBER_LOST, f"{lost.loss()}; the next trainer starts from the checkpoint")

    def _lost_member(self) -> GangMember | None:
        return next((member for member in self._members if member.loss(wait=False) is not None), None)

    async def _make_trainer(self) -> Trainer:
        warm_process, spec = self._warm_process, self._spec
        artifacts = JobArtifacts(warm_process.artifact_root, warm_process.job_id)
        engine = await asyncio.get_running_loop().run_in_executor(
            self._executor,
            lambda: self._lead(
                Path(warm_process.model_path),
                spec,
                members=self._members,
                listen_host=self._listening.getsockname()[0],
                artifacts=artifacts.shared_folder,
            ),
        )
        return Trainer(
            warm_process=warm_process,
            spec=spec,
            engine=engine,
            executor=self._executor,
            report=self._report,
            offers=self._open_offers(artifacts.versions, spec),
            artifacts=artifacts,
        )

    def _report(self, doing: Doing) -> None:
        self._channel.send(doing)
        self._send(LeaderState(state=doing.state, cause=doing.cause))

    def _send(self, command: Command) -> "Future[None]":
        """Send a command from the computing thread, so that it keeps its order among the engine's commands."""
        sending = self._executor.submit(
            command_send, [member.connection for member in self._members], command
        )
        sending.add_done_callback(_log_failure)
        return sending


def _log_failure(sending: "Future[None]") -> None:
    """Log a failure to send: the member is gone, and the next call of the engine reports it."""
    if not sending.cancelled() and (error := sending.exception()) is not None:
        logger.warning("%s", error)
