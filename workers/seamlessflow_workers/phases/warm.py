"""A warm process: a child started once for a (job, role) that carries out one phase after another.

It takes a `WarmProcess` (all it needs to start) and, over time, phases to begin, refresh, drain or abandon. It reports
moves of those phases and the end of the child, expected or not. Invariants: a machine starts one child at a time; if
the child dies, or gives no sign of life for too long, its phase fails with the reason; nothing of the child is left
when its task has ended.
"""

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from pathlib import Path
from typing import NoReturn

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.liveness.pulse import ASK_EVERY_S, Pulse
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.files import FilesMissing, MachineFiles, is_remote
from seamlessflow_workers.phases.running import ChildKey, KnownChild, RunningPhase
from seamlessflow_workers.process.child import ChildCommand, ChildProcess
from seamlessflow_workers.process.logs import OutputLog

NOUNS = {Role.ROLLOUT: "engine", Role.TRAIN: "trainer", Role.AGENT: "agent runner"}
ABANDON_S = 10.0  # the time that a child gets to leave a phase that is no longer ours
STOP_GRACE_S = 1.0
FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0
STABLE_S = 60.0  # after this lifetime failures are counted anew
# Without a sign of life: a trainer may block its interpreter for a while, the others never do.
SILENCE_LIMITS_S = {Role.ROLLOUT: 20.0, Role.TRAIN: 30.0, Role.AGENT: 20.0}
# Weights may come from a slow disk and kernels may have to be compiled; meanwhile nothing answers.
LOADING_LIMIT_S = 1800.0
NOTICE_EXIT_S = 0.5  # between a broken connection and the exit status that explains it

log = logging.getLogger(__name__)


class ChildFailure(RuntimeError):
    """The child cannot go on; the message says why in one sentence for people."""


def restart_delay_s(num_failures: int) -> float:
    return min(FIRST_DELAY_S * 2 ** (num_failures - 1), LONGEST_DELAY_S) if num_failures else 0.0


class WarmChild(ABC):
    """Loading → warm (with or without a phase) → gone, when `task` is done."""

    def __init__(self, warm_process: WarmProcess, dependencies: Dependencies, *, num_failures: int) -> None:
        self.warm_process = warm_process
        self.key = ChildKey(warm_process.job_id, warm_process.role)
        self.phase: RunningPhase | None = None
        self.is_loading = True
        self.is_leaving = False  # takes no more phases
        self.num_failures = num_failures  # in a row, including those before this start
        self._dependencies = dependencies
        self._loaded_s = math.inf
        self._process: ChildProcess | None = None
        self._stalled = ""  # why it was killed
        self._files = MachineFiles(warm_process.artifact_root)
        self._pulse = Pulse(SILENCE_LIMITS_S[warm_process.role])
        self._log = OutputLog(
            dependencies.folders.logs,
            role=warm_process.role,
            job_id=warm_process.job_id,
            on_written=dependencies.shipper.notify,
        )
        self.task = asyncio.create_task(self._run(), name=f"{warm_process.role}-{warm_process.job_id}")

    def begin(self, phase: RunningPhase) -> None:
        self.phase = phase
        file = self._log.bind(phase.order.phase_id)
        self._dependencies.shipper.follow(phase.order.phase_id, stream=phase.order.role, file=file)
        self._on_phase_changed()

    def refresh(self, order: PhaseOrder) -> None:
        """Take the same order again, perhaps with newer weights or a renewed credential."""
        if self.phase is not None:
            self.phase.order = order
            self._on_phase_changed()

    def drain(self) -> None:
        if self.phase is not None and self.phase.state in (PhaseState.STARTING, PhaseState.ACTIVE):
            self.phase.drain()
            if self.is_loading:
                self._leave_unloaded()  # the machine is not kept busy until the model is loaded
            else:
                self._on_phase_changed()

    def abandon(self) -> None:
        """Drain a phase that is no longer ours, and after a while end the child with it."""
        if self.phase is not None:
            self.phase.is_abandoned = True
            asyncio.get_running_loop().call_later(ABANDON_S, self._enforce_abandonment, self.phase)
            self.drain()

    def fits(self, order: PhaseOrder) -> bool:
        """Whether the child as it is can carry out this order; if not, another one is started."""
        return True

    async def leave(self) -> None:  # noqa: B027 - an optional step
        """Hand over what is possible within seconds before the machine stops; nothing by default."""

    def stop(self) -> None:
        """End the child; `task` is done when nothing of it is left."""
        self.is_leaving = True
        self.task.cancel()

    def known(self) -> KnownChild:
        return KnownChild(self.key, self.is_loading)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The machine's devices when it was started."""
        return self._dependencies.settings.devices

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @abstractmethod
    async def _prepare(self) -> ChildCommand:
        """Return the command line once everything that it names exists."""

    @abstractmethod
    async def _load(self) -> None:
        """Return once the child can carry out phases."""

    @abstractmethod
    async def _work(self) -> None:
        """Carry out phases until cancelled."""

    @abstractmethod
    def _on_phase_changed(self) -> None:
        """React to a new phase, order or state."""

    @abstractmethod
    def _ask_for_sign(self) -> None:
        """Ask the child for a sign of life; its answer, whenever it comes, is a beat of `_pulse`."""

    async def _clean_up(self) -> None:  # noqa: B027 - an optional step
        """Release what `_prepare` and `_load` took."""

    async def _model_folder(self) -> Path:
        """Return the initial model's folder on this machine, which stays while the child lives. Raises ChildFailure."""
        recorded = self.warm_process.model_path
        if not is_remote(recorded):
            return Path(recorded)  # the child says what is wrong with it
        try:
            return await self._files.hold("model", recorded)
        except FilesMissing as error:
            raise ChildFailure(f"the initial model did not appear: {error}") from error

    async def _run(self) -> None:
        try:
            await asyncio.sleep(restart_delay_s(self.num_failures))
            async with self._dependencies.loading:
                await self._spawn()
                await self._until_exit(self._load_in_time())
            self.is_loading = False
            self._loaded_s = time.monotonic()
            self._dependencies.on_moved()
            await self._until_exit(self._work_while_alive())
        except ChildFailure as error:
            self._note_failure(str(error))
        except Exception as error:
            self._note_failure(f"{self._noun} met an unexpected {type(error).__name__}: {error}")
            raise
        finally:
            await self._clean_up()
            if self._process is not None:
                await self._process.stop(grace_s=STOP_GRACE_S)
            self._files.release()
            self._log.close()
            if self.phase is not None and not self.phase.is_over:
                self.phase.fail("the supervisor stopped this child")
                self._release(self.phase)

    async def _load_in_time(self) -> None:
        """Load. Raises ChildFailure if that takes too long, so that a hanging child does not block the machine."""
        loading, pulse = asyncio.create_task(self._load()), Pulse(LOADING_LIMIT_S)
        last_s = time.monotonic()
        try:
            while not loading.done() and not pulse.is_lost:
                await asyncio.wait({loading}, timeout=ASK_EVERY_S)
                now_s = time.monotonic()
                pulse.listened(now_s - last_s)
                last_s = now_s
            if not loading.done():
                self._give_up(f"it did not load within {LOADING_LIMIT_S:.0f} s and was killed")
            loading.result()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _work_while_alive(self) -> None:
        working, watching = asyncio.create_task(self._work()), asyncio.create_task(self._watch_pulse())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, working):
                if task.done():
                    task.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _watch_pulse(self) -> None:
        """Kill a child that gave no sign of life for too long, and raise ChildFailure."""
        last_s = time.monotonic()
        while not self._pulse.is_lost:
            self._ask_for_sign()
            await asyncio.sleep(ASK_EVERY_S)
            last_s, elapsed_s = time.monotonic(), time.monotonic() - last_s
            self._pulse.listened(elapsed_s)
        self._give_up(f"it gave no sign of life for {self._pulse.limit_s:.0f} s and was killed")

    def _give_up(self, reason: str) -> NoReturn:
        assert self._process is not None
        self._stalled = f"{self._noun} stalled: {reason}"
        self._process.kill()
        raise ChildFailure(self._stalled)

    async def _spawn(self) -> None:
        command = await self._prepare()
        try:
            self._process = await ChildProcess.spawn(
                command,
                cores=self._dependencies.settings.cores,
                log=self._log,
                fork_server=self._dependencies.fork_server,
            )
        except OSError as error:
            raise ChildFailure(f"{self._noun} could not be started: {error}") from error

    async def _until_exit(self, work: Coroutine[object, object, None]) -> None:
        """Run `work`; raise ChildFailure if the process ends first, whichever way that is noticed."""
        assert self._process is not None
        working = asyncio.create_task(work)
        exiting = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({working, exiting}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is None:
                return
            await asyncio.wait({exiting}, timeout=NOTICE_EXIT_S)
            if exiting.done() and not self._stalled:
                raise ChildFailure(f"{self._noun} {exiting.result()}")
            working.result()
        finally:
            for task in (working, exiting):
                task.cancel()
            await asyncio.gather(working, exiting, return_exceptions=True)

    def _note_failure(self, reason: str) -> None:
        self.is_leaving = True
        if time.monotonic() - self._loaded_s > STABLE_S:
            self.num_failures = 0
        self.num_failures += 1
        if self.key.role is not Role.AGENT:
            self._dependencies.on_failed(reason, self.devices)
        if self.num_failures > 1:
            reason = f"{reason} (failure {self.num_failures} in a row)"
        log.warning("%s", reason)
        if self.phase is not None and not self.phase.is_over:
            self.phase.fail(reason)
            self._release(self.phase)

    def _finish_phase(self, reason: str = "") -> None:
        assert self.phase is not None
        phase, self.phase = self.phase, None
        self.num_failures = 0
        phase.end(reason)
        self._release(phase)

    def _leave_unloaded(self) -> None:
        """End a phase that has nothing to hand over; earlier failures still count."""
        assert self.phase is not None
        phase, self.phase = self.phase, None
        phase.end("drained before it was loaded")
        self._release(phase)

    def _release(self, phase: RunningPhase) -> None:
        self._log.unbind()
        self._dependencies.shipper.complete(phase.order.phase_id)

    def _enforce_abandonment(self, phase: RunningPhase) -> None:
        if not phase.is_over:
            log.warning(
                "%s did not leave an abandoned phase within %.0f s; stopping it", self._noun, ABANDON_S
            )
            self.stop()

    @property
    def _noun(self) -> str:
        return f"the {NOUNS[self.key.role]}"
