"""Trainers and agent runners: children that speak `core.protocol.child` over an inherited socket.

It takes phases to begin and drain, and sends Begin, Drain and Renew to the child. It turns the child's Ready, Begun,
Doing, Ended and Failed into moves of the phase, and exchanges Ping and Pong. Invariant: a message about a phase other
than the present one changes nothing.
"""

import logging
import socket
import time

import msgspec

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.child import (
    Begin,
    Begun,
    Doing,
    Drain,
    Ended,
    Failed,
    FromChild,
    Ping,
    Pong,
    Ready,
    Renew,
    Serving,
    ToChild,
)
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.control_link import ControlLink
from seamlessflow_workers.phases.running import RunningPhase
from seamlessflow_workers.phases.warm import WarmChild
from seamlessflow_workers.phases.watched import ChildFailure, WatchedProcess
from seamlessflow_workers.process.child import ChildCommand
from seamlessflow_workers.process.device_environment import trainer_environment
from seamlessflow_workers.process.environment import DEVICE_ENVIRONMENT, store_environment

RENEW_EVERY_S = 3600.0  # credentials are valid for a day; each answer to a heartbeat brings a new one

log = logging.getLogger(__name__)


class ControlledChild(WarmChild):
    _process: WatchedProcess | None = None
    _link: ControlLink | None = None
    _has_begun = False
    _renewed_s = 0.0  # monotonic
    _is_drain_sent = False
    _gang: tuple[str, ...] | None = None  # the machines that its process trains with, once it has begun

    def fits(self, order: PhaseOrder) -> bool:
        """Whether this child can carry out the order: a trainer is bound to the machines that it once trained with."""
        return order.gang is None or self._gang in (None, tuple(order.gang.machines))

    @property
    def pids(self) -> tuple[int, ...]:
        pid = self._process.pid if self._process else None
        return () if pid is None else (pid,)

    async def _live(self) -> None:
        self._process = WatchedProcess(
            self._noun,
            silence_limit_s=self._silence_limit_s,
            ask_for_sign=lambda: self._send(Ping()),
            # What agents use is not their runner's.
            memory_limit_bytes=self._dependencies.settings.memory_limit_bytes
            if self.key.role is Role.TRAIN
            else None,
        )
        await self._wait_for_memory()
        async with self._dependencies.loading:
            await self._spawn(self._process)
            await self._process.load(self._load)
        self._note_loaded()
        await self._process.work(self._work)

    async def _spawn(self, process: WatchedProcess) -> None:
        self._link, theirs = await ControlLink.open(self._noun)
        with theirs:
            await process.spawn(
                await self._command(theirs),
                cores=self._dependencies.settings.cores,
                log=self._log,
                fork_server=self._dependencies.fork_server,
            )

    async def _command(self, theirs: socket.socket) -> ChildCommand:
        settings = self._dependencies.settings
        is_trainer = self.key.role is Role.TRAIN
        program = settings.train_command if is_trainer else settings.agent_command
        path = self._dependencies.folders.run / f"{self.key.role}-{self.key.job_id}.json"
        # The address at which this machine reaches the control plane, which may differ from the one that people open.
        warm_process = msgspec.structs.replace(
            self.warm_process,
            control_plane_url=settings.control_plane_url,
            model_path=str(await self._model_folder()) if is_trainer else "",
        )
        path.write_bytes(msgspec.json.encode(warm_process))
        descriptor, meeting = theirs.fileno(), self._dependencies.rendezvous_fd
        is_of_gang = is_trainer and _trains_in_gangs(warm_process)
        return ChildCommand(
            (
                *(*program, "--control-fd", str(descriptor), "--warm-process", str(path)),
                *(("--rendezvous-fd", str(meeting)) if is_of_gang else ()),
            ),
            environment={
                **self._device_environment(),
                **(store_environment() if is_trainer else {}),
                "SEAMLESSFLOW_LISTEN_HOST": settings.listen_host,
                "SEAMLESSFLOW_ADVERTISED_HOST": settings.advertised_host,
            },
            inherited_fds=(descriptor, meeting) if is_of_gang else (descriptor,),
        )

    def _device_environment(self) -> dict[str, str]:
        settings = self._dependencies.settings
        if self.key.role is not Role.TRAIN:
            return DEVICE_ENVIRONMENT[settings.device]
        if not settings.devices:
            raise ChildFailure("every device of this machine is cordoned")
        return trainer_environment(settings.devices)

    async def _load(self) -> None:
        assert self._link is not None
        while not isinstance(message := await self._link.receive(), Ready):
            continue
        self._memory.sleep(self, kept_bytes=message.kept_bytes)
        if self.phase is not None:
            self._memory.wake(self)  # before another child can take the memory in which it has loaded

    async def _work(self) -> None:
        assert self._link is not None
        self._on_phase_changed()
        while True:
            self._take(await self._link.receive())

    async def _clean_up(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            await self._process.stop()

    def _on_phase_changed(self) -> None:
        phase = self.phase
        if self.is_loading or phase is None or phase.is_over:
            return
        if phase.state is PhaseState.STARTING and not self._has_begun and self._memory.wake(self):
            self._begin_work(phase)
        elif phase.state is PhaseState.DRAINING and not self._has_begun:
            self._memory.sleep(self)
            self._finish_phase("drained before it began")
        elif phase.state is PhaseState.DRAINING and not self._is_drain_sent:
            self._is_drain_sent = True
            self._send(Drain(phase_id=phase.order.phase_id, grace_s=phase.order.drain_grace_s))
        if self._has_begun and time.monotonic() - self._renewed_s >= RENEW_EVERY_S:
            self._renewed_s = time.monotonic()
            self._send(Renew(phase_id=phase.order.phase_id, credential=phase.order.credential))

    def _begin_work(self, phase: RunningPhase) -> None:
        self._has_begun, self._is_drain_sent = True, False
        self._renewed_s = time.monotonic()
        self._send(Begin(order=phase.order))
        if phase.order.gang is None:
            phase.activate()
        else:
            self._gang = tuple(phase.order.gang.machines)  # active once the child has sent Begun

    def _take(self, message: FromChild) -> None:
        phase = self.phase
        assert self._process is not None
        self._process.beat()
        if phase is None or isinstance(message, Ready | Pong | Serving):
            return
        if isinstance(message, Doing):
            phase.do(message)
        elif message.phase_id != phase.order.phase_id:
            log.warning(
                "%s sent a message about phase %s, which is not the present one", self._noun, message.phase_id
            )
        elif isinstance(message, Begun):
            if phase.state is PhaseState.STARTING:
                phase.activate()
        elif isinstance(message, Ended):
            self._has_begun = False
            if message.kept_bytes is not None:
                self._memory.sleep(self, kept_bytes=message.kept_bytes, peak_bytes=message.peak_bytes)
            self._finish_phase(message.reason)
        elif isinstance(message, Failed):
            self._has_begun = False
            self.phase = None
            phase.fail(message.reason, message.cause)
            self._release(phase)

    def _send(self, message: ToChild) -> None:
        assert self._link is not None
        self._link.send(message)


def _trains_in_gangs(warm_process: WarmProcess) -> bool:
    """Whether several machines may train the job together."""
    given = warm_process.spec.get("train", {}).get("num_machines", 1)
    return int(given["max"] if isinstance(given, dict) else given) > 1
