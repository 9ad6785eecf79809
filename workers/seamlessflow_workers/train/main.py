"""The trainer process: `python -m seamlessflow_workers.train --control-fd N --warm-process FILE`.

It speaks `core.protocol.child`. States: loading → ready ⇄ in a phase. A failed phase is reported and the process exits:
the next one starts from the last checkpoint, never from weights in an unknown state.
"""

import argparse
import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol
from uuid import UUID

import msgspec

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow.core.protocol.child import Begin, Drain, Ended, Failed, Ready, Renew, ToChild
from seamlessflow.core.protocol.worker import GangOrder, PhaseOrder, WarmProcess
from seamlessflow.runtime.artifacts.opening import InvalidRoot
from seamlessflow.runtime.artifacts.store import StoreError
from seamlessflow.runtime.logs import log_to_stderr
from seamlessflow_workers.clients.http import FencedOff, RequestRefused, ServerUnavailable
from seamlessflow_workers.process.input_faults import InputFault, leave_for_input
from seamlessflow_workers.train.checkpoint import CheckpointReadError, CheckpointWriteError
from seamlessflow_workers.train.control import ControlChannel, die_with_parent, end_process
from seamlessflow_workers.train.step_engine import DeviceUse, ModelLoadError, RankGone, StepEngine
from seamlessflow_workers.train.step_watch import StepStalled
from seamlessflow_workers.train.trainer import BatchMismatch, Trainer, VersionOffers
from seamlessflow_workers.weights.artifacts import JobArtifacts
from seamlessflow_workers.weights.transports.file.sending import WeightsWriteError

logger = logging.getLogger(__name__)

_ANTICIPATED = (
    BatchMismatch,
    CheckpointReadError,
    CheckpointWriteError,
    FencedOff,
    ModelLoadError,  # a gang loads in its first phase
    RankGone,
    RequestRefused,
    StepStalled,
    StoreError,
    WeightsWriteError,
)
EXIT_NOT_LOADED = 2
EXIT_PHASE_FAILED = 3
GIVE_UP_POLL_S = 0.1

LoadEngine = Callable[[Path, JobSpec], StepEngine]  # runs in the thread that later computes
OpenOffers = Callable[[Path, JobSpec], VersionOffers | None]  # for a folder of versions; None: files only


class PhaseWorker(Protocol):
    """Executes phases: a `Trainer`, or one machine of a gang."""

    is_discarded: bool

    @property
    def is_stepping(self) -> bool: ...

    async def run_phase(self, order: PhaseOrder, drained: asyncio.Event) -> str: ...

    async def device_leave(self) -> DeviceUse: ...

    def renew(self, credential: str) -> None: ...


class MakeGangWorker(Protocol):
    """Makes the worker for this machine's role in a gang, by the gang's first order."""

    def __call__(
        self,
        gang: GangOrder,
        *,
        warm_process: WarmProcess,
        spec: JobSpec,
        executor: Executor,
        channel: ControlChannel,
        listening: socket.socket,
    ) -> PhaseWorker: ...


def main(
    load_engine: LoadEngine,
    open_offers: OpenOffers = lambda *_: None,
    make_gang_worker: MakeGangWorker | None = None,
) -> None:
    parser = argparse.ArgumentParser(prog="seamlessflow_workers.train", description=__doc__.splitlines()[0])
    parser.add_argument("--control-fd", type=int, required=True, help="inherited socket to the supervisor")
    parser.add_argument(
        "--warm-process", type=Path, required=True, help="JSON of core.protocol.worker.WarmProcess"
    )
    parser.add_argument(
        "--rendezvous-fd", type=int, help="inherited socket at which the trainers of a gang meet"
    )
    arguments = parser.parse_args()
    die_with_parent()
    log_to_stderr()
    warm_process = msgspec.json.decode(arguments.warm_process.read_bytes(), type=WarmProcess)
    spec = JobSpec.model_validate(warm_process.spec)
    if spec.train.num_machines > 1:
        if arguments.rendezvous_fd is None or make_gang_worker is None:
            parser.error("--rendezvous-fd is required if train.num_machines is more than 1")
        listening = socket.socket(fileno=arguments.rendezvous_fd)
        asyncio.run(_serve_gangs(arguments.control_fd, listening, warm_process, spec, make_gang_worker))
    else:
        asyncio.run(_serve(arguments.control_fd, warm_process, spec, load_engine, open_offers))


def _torch_thread() -> ThreadPoolExecutor:
    """Return one thread for all torch calls, so that steps, files and the event loop never compete for its state."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")


async def _serve_gangs(
    control_fd: int, listening: socket.socket, warm_process: WarmProcess, spec: JobSpec, make: MakeGangWorker
) -> None:
    """Serve as a machine of gangs. The first phase gives the role; only then the model is loaded."""
    channel, executor = await ControlChannel.open(control_fd), _torch_thread()
    channel.send(Ready())
    begin = await channel.receive()
    while not isinstance(begin, Begin):  # messages about a phase of an earlier process
        begin = await channel.receive()
    assert begin.order.gang is not None
    worker = make(
        begin.order.gang,
        warm_process=warm_process,
        spec=spec,
        executor=executor,
        channel=channel,
        listening=listening,
    )
    await _obey(channel, worker, begin)


async def _serve(
    control_fd: int,
    warm_process: WarmProcess,
    spec: JobSpec,
    load_engine: LoadEngine,
    open_offers: OpenOffers,
) -> None:
    channel, executor = await ControlChannel.open(control_fd), _torch_thread()
    loading = asyncio.get_running_loop().run_in_executor(
        executor, load_engine, Path(warm_process.model_path), spec
    )
    try:
        artifacts = JobArtifacts(warm_process.artifact_root, warm_process.job_id)
        engine = await loading
        trainer = Trainer(
            warm_process=warm_process,
            spec=spec,
            engine=engine,
            executor=executor,
            report=channel.send,
            offers=open_offers(artifacts.versions, spec),
            artifacts=artifacts,
        )
        await trainer.resume()
        use = await trainer.device_leave()
    except InputFault as error:
        leave_for_input(str(error))
    except (ModelLoadError, CheckpointReadError, InvalidRoot, StoreError) as error:
        end_process(EXIT_NOT_LOADED, f"the trainer could not be loaded: {error}")
    channel.send(Ready(kept_bytes=use.kept_bytes))
    await _obey(channel, trainer)


async def _obey(channel: ControlChannel, trainer: PhaseWorker, first: Begin | None = None) -> None:
    """Answer the supervisor for ever, beginning with `first`. The process exits when the socket closes."""
    phase: _Phase | None = None
    message: ToChild | None = first
    while True:
        message = message or await channel.receive()
        is_busy = phase is not None and not phase.task.done()
        match message:
            case Begin(order=order) if (
                phase is not None and is_busy and phase.order.phase_id != order.phase_id
            ):
                reason = f"the trainer is still busy with phase {phase.order.phase_id}"
                channel.send(Failed(phase_id=order.phase_id, reason=reason))
            case Begin(order=order) if not is_busy:
                phase = _Phase(order, trainer, channel)
            case Begin():
                logger.info("phase %s has already begun", message.order.phase_id)
            case Drain(phase_id=phase_id, grace_s=grace_s) if (
                phase is not None and phase.order.phase_id == phase_id
            ):
                phase.drain(grace_s)
            case Drain(phase_id=phase_id):
                channel.send(Ended(phase_id=phase_id, reason="the phase was not running"))
            case Renew(phase_id=phase_id, credential=credential) if (
                phase is not None and phase.order.phase_id == phase_id
            ):
                trainer.renew(credential)
            case Renew():
                logger.info("ignored a credential for a phase that is over")
        message = None


class _Phase:
    """A phase in progress: running → ended, or the process exits."""

    def __init__(self, order: PhaseOrder, trainer: PhaseWorker, channel: ControlChannel) -> None:
        self.order = order
        self.drained = asyncio.Event()
        self._trainer = trainer
        self._channel = channel
        self._hurry: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    def drain(self, grace_s: float | None) -> None:
        """End at the next safe point; a step that still runs after `grace_s` is given up with the process."""
        self._trainer.is_discarded = grace_s is not None
        self.drained.set()
        if grace_s is not None and self._hurry is None:
            self._hurry = asyncio.create_task(self._give_up_after(grace_s))

    async def _give_up_after(self, grace_s: float) -> None:
        await asyncio.wait({self.task}, timeout=grace_s)
        while not self.task.done():
            if self._trainer.is_stepping:
                reason = "the running step was given up, because its job is cancelled"
                self._channel.send(Ended(phase_id=self.order.phase_id, reason=reason))
                await self._channel.flush()
                end_process(0, reason)
            await asyncio.wait(
                {self.task}, timeout=GIVE_UP_POLL_S
            )  # it is writing, which is always completed

    async def _run(self) -> None:
        phase_id = self.order.phase_id
        try:
            reason, use = await self._work()
        except _ANTICIPATED as error:
            logger.error("phase %s failed: %s", phase_id, error)
            cause = FailureCause.INPUT if isinstance(error, InputFault) else FailureCause.WORK
            await self._fail(phase_id, str(error), cause)
        except Exception as error:
            logger.exception("phase %s failed", phase_id)
            await self._fail(phase_id, f"the trainer failed: {type(error).__name__}: {error}")
            raise
        else:
            self._channel.send(
                Ended(phase_id=phase_id, reason=reason, kept_bytes=use.kept_bytes, peak_bytes=use.peak_bytes)
            )

    async def _work(self) -> tuple[str, DeviceUse]:
        """Return why the phase ended, once the accelerator is free for others, and what of it is not."""
        try:
            reason = await self._trainer.run_phase(self.order, self.drained)
        except ServerUnavailable as error:
            # Drained while the control plane was away: the version stays in memory and the next phase announces it.
            reason = f"drained before the version was announced: {error}"
        return reason, await self._trainer.device_leave()

    async def _fail(self, phase_id: UUID, reason: str, cause: FailureCause = FailureCause.WORK) -> None:
        self._channel.send(Failed(phase_id=phase_id, reason=reason, cause=cause))
        await self._channel.flush()
        end_process(EXIT_PHASE_FAILED, reason)
