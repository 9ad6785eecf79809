"""A warm process: a child started once for a (job, role) that carries out one phase after another.

It takes a `WarmProcess` (all it needs to start) and, over time, phases to begin, refresh, drain or abandon. It reports
moves of those phases and the end of the child, expected or not. Invariants: a machine starts one child at a time; if
the child fails, its phase fails with the reason; nothing of the child is left when its task has ended.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from pathlib import Path

from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.dependencies import Dependencies
from seamlessflow_workers.phases.device_budget import NOUNS, wanted_of
from seamlessflow_workers.phases.files import FilesMissing, MachineFiles, is_remote
from seamlessflow_workers.phases.running import ChildKey, KnownChild, RunningPhase
from seamlessflow_workers.phases.watched import ChildFailure
from seamlessflow_workers.process.failures import FailureCount
from seamlessflow_workers.process.logs import OutputLog

ABANDON_S = 10.0  # the time that a child gets to leave a phase that is no longer ours
# Without a sign of life: a trainer may block its interpreter for a while, the others never do.
SILENCE_LIMITS_S = {Role.ROLLOUT: 20.0, Role.TRAIN: 30.0, Role.AGENT: 20.0}

log = logging.getLogger(__name__)


class WarmChild(ABC):
    """Loading → warm (with or without a phase) → gone, when `task` is done."""

    def __init__(self, warm_process: WarmProcess, dependencies: Dependencies, *, num_failures: int) -> None:
        self.warm_process = warm_process
        self.key = ChildKey(warm_process.job_id, warm_process.role)
        self.phase: RunningPhase | None = None
        self.is_loading = True
        self.is_leaving = False  # takes no more phases
        self._failures = FailureCount(num_failures)
        self._dependencies = dependencies
        self._files = MachineFiles(warm_process.artifact_root)
        self._log = OutputLog(
            dependencies.folders.logs,
            role=warm_process.role,
            job_id=warm_process.job_id,
            on_written=dependencies.shipper.notify,
        )
        self._memory = dependencies.memory
        self._memory.enter(self, wanted_of(warm_process, dependencies.settings))
        self._memory_freed = asyncio.Event()  # set once others have freed some
        self.task = asyncio.create_task(self._run(), name=f"{warm_process.role}-{warm_process.job_id}")
        self.task.add_done_callback(self._on_gone)

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
        """Hand over as much as possible within seconds before the machine stops; nothing by default."""

    def stop(self) -> None:
        """End the child; `task` is done when nothing of it is left."""
        self.is_leaving = True
        self.task.cancel()

    def on_memory_freed(self) -> None:
        """Ask again for memory of the devices: others have freed some."""
        self._memory_freed.set()
        if not self.is_leaving:
            self._on_phase_changed()

    def known(self) -> KnownChild:
        return KnownChild(self.key, self.is_loading)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The machine's devices when it was started."""
        return self._dependencies.settings.devices

    @property
    def num_failures(self) -> int:
        """Return how often it failed in a row, including those before this start."""
        return self._failures.num

    @property
    @abstractmethod
    def pids(self) -> tuple[int, ...]:
        """The processes that it has started."""

    @abstractmethod
    async def _live(self) -> None:
        """Start processes, call `_note_loaded`, and carry out phases until cancelled. Raises ChildFailure."""

    @abstractmethod
    def _on_phase_changed(self) -> None:
        """React to a new phase, order or state."""

    async def _clean_up(self) -> None:  # noqa: B027 - an optional step
        """Release what `_live` took; nothing of the child's processes is left afterwards."""

    async def _wait_for_memory(self) -> None:
        """Wait until the devices have memory for it to load. It leaves if no phase needs it before."""
        while not self._memory.wake(self):
            if self.phase is None:
                self.stop()
            self._memory_freed.clear()
            await self._memory_freed.wait()

    async def _model_folder(self) -> Path:
        """Return the initial model's folder on this machine, which stays while the child lives. Raises ChildFailure."""
        recorded = self.warm_process.model_path
        if not is_remote(recorded):
            return Path(recorded)  # the child reports its fault
        try:
            return await self._files.pin("model", recorded)
        except FilesMissing as error:
            raise ChildFailure(f"the initial model did not appear: {error}") from error

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._failures.delay_s)
            await self._live()
        except ChildFailure as error:
            self._note_failure(str(error), error.cause)
        except Exception as error:
            self._note_failure(f"{self._noun} met an unexpected {type(error).__name__}: {error}")
            raise
        finally:
            await self._clean_up()
            self._files.release()
            if self.phase is not None and not self.phase.is_over:
                self.phase.fail("the supervisor stopped this child")
                self._release(self.phase)

    def _on_gone(self, _: asyncio.Task[None]) -> None:
        """Its task has ended, perhaps before it began."""
        self._memory.leave(self)
        self._log.close()

    def _note_loaded(self) -> None:
        self.is_loading = False
        self._failures.loaded()
        self._dependencies.on_moved()

    def _note_failure(self, reason: str, cause: FailureCause = FailureCause.WORK) -> None:
        self.is_leaving = True
        self._failures.add()
        if cause is FailureCause.WORK:
            self._blame(reason)
            if self.num_failures > 1:
                reason = f"{reason} (failure {self.num_failures} in a row)"
        log.warning("%s", reason)
        if self.phase is not None and not self.phase.is_over:
            self.phase.fail(reason, cause)
            self._release(self.phase)

    def _blame(self, reason: str) -> None:
        """Report on which devices the child failed, in case it was their fault."""
        if self.key.role is not Role.AGENT:
            self._dependencies.on_failed(reason, self.devices)

    def _finish_phase(self, reason: str = "") -> None:
        assert self.phase is not None
        phase, self.phase = self.phase, None
        self._failures.num = 0
        phase.end(reason)
        self._release(phase)

    def _leave_unloaded(self) -> None:
        """End a phase that has nothing to hand over; earlier failures still count."""
        assert self.phase is not None
        phase, self.phase = self.phase, None
        phase.end("drained before it was loaded")
        self._release(phase)
        self._memory_freed.set()

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
    def _silence_limit_s(self) -> float:
        return SILENCE_LIMITS_S[self.key.role]

    @property
    def _noun(self) -> str:
        return f"the {NOUNS[self.key.role]}"
