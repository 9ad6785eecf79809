"""Keeps the processes of a machine from using more memory of its devices than these have.

Children ask before they load and before they wake, and report what they keep once they sleep. One that an order needs
gets its memory: those that sleep are ended, the cheapest to lose first, and it waits until they are gone. One that is
started ahead of time gets none, and is not started. Invariant: a child that is carrying out a phase is never ended.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.protocol.worker import WarmProcess
from seamlessflow.core.sizing.bookings import Bookings, Wanted
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.running import ChildKey, RunningPhase
from seamlessflow_workers.process.settings import ChildSettings

NOUNS = {Role.ROLLOUT: "engine", Role.TRAIN: "trainer", Role.AGENT: "agent runner"}

log = logging.getLogger(__name__)


class Occupant(Protocol):
    """A child as this module knows it."""

    key: ChildKey
    phase: RunningPhase | None
    is_leaving: bool

    def stop(self) -> None: ...

    def on_memory_freed(self) -> None:
        """Others have freed some: ask again."""
        ...


class DeviceBudget:
    """One for each machine. Agents use no device, so nothing is booked for them."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._bookings = Bookings[Occupant](smallest_bytes(devices))
        self._refusals: dict[ChildKey, str] = {}  # which children are not started ahead, and why

    def resize(self, devices: Sequence[Device]) -> None:
        """Use these devices from now on."""
        self._bookings.total_bytes = smallest_bytes(devices)

    def postponed(self, warm_processes: Iterable[WarmProcess], settings: ChildSettings) -> set[ChildKey]:
        """Return which children may not be started ahead of time, for lack of memory beside those that are there."""
        running = {one.key for one in self._bookings if not one.is_leaving}
        refusals: dict[ChildKey, str] = {}
        for warm_process in warm_processes:
            key = ChildKey(warm_process.job_id, warm_process.role)
            if key.role is not Role.AGENT and key not in running:
                refusals[key] = self._bookings.refusal(_name(key), wanted_of(warm_process, settings))
        for key, refusal in refusals.items():
            if refusal and refusal != self._refusals.get(key):
                log.info("%s; it is started when there is enough memory", refusal)
        self._refusals = refusals
        return {key for key, refusal in refusals.items() if refusal}

    def enter(self, child: Occupant, wanted: Wanted) -> None:
        """Add a child that is being started. If there is enough memory, it is the child's from now on."""
        if child.key.role is not Role.AGENT:
            self._bookings.add(child, _name(child.key), wanted)
            self._bookings.wake(child)

    def wake(self, child: Occupant) -> bool:
        """Whether the child may load or work from now on. If not, and if a phase of it waits, memory is freed for it.
        It is called when to ask again."""
        refusal = self._bookings.wake(child) if child in self._bookings else ""
        if refusal and child.phase is not None:
            self._free_memory(child, refusal)
        return not refusal

    def sleep(self, child: Occupant, *, kept_bytes: int | None = None, peak_bytes: int = 0) -> None:
        """Take what a child keeps of each device now that it sleeps (None: as much as the last time), and the most that
        it used before (0: not known)."""
        if child in self._bookings:
            self._bookings.sleep(child, kept_bytes=kept_bytes, peak_bytes=peak_bytes)
            self._wake_others(child)

    def leave(self, child: Occupant) -> None:
        """Take that nothing of a child is left."""
        self._bookings.remove(child)
        self._wake_others(child)

    def share(self, child: Occupant) -> float | None:
        """Return the fraction of each device that an engine was given which takes the rest; None for all others."""
        return self._bookings.share(child)

    def is_outgrown(self, child: Occupant) -> bool:
        """Whether an engine took so much that there is too little memory for what trainers keep, which are dearer to
        lose. It is started anew then, and takes less."""
        trainers = [one for one in self._bookings if one.key.role is Role.TRAIN and one is not child]
        return child in self._bookings and self._bookings.is_outgrown(child, trainers)

    def _free_memory(self, child: Occupant, refusal: str) -> None:
        others = [one for one in self._bookings if one is not child]
        losable = [one for one in others if one.phase is None or one.phase.is_over]
        order = sorted(losable, key=lambda one: self._cost(one, child))
        for one in self._bookings.losses(child, order):
            if not one.is_leaving:
                log.warning("%s; %s is ended", refusal, _name(one.key))
                one.stop()

    def _cost(self, one: Occupant, child: Occupant) -> tuple[bool, bool, bool, bool, int]:
        """Return a key that is smaller for those that are cheaper to lose: those that leave anyhow; those that load
        ahead; engines, which only have to load again; trainers, of other jobs first; of equals the one that has
        most."""
        return (
            not one.is_leaving,
            not self._bookings.is_awake(one),
            one.key.role is Role.TRAIN,
            one.key.job_id == child.key.job_id,
            -self._bookings.num_bytes(one),
        )

    def _wake_others(self, child: Occupant) -> None:
        for one in self._bookings:
            if one is not child:
                one.on_memory_freed()


def wanted_of(warm_process: WarmProcess, settings: ChildSettings) -> Wanted:
    """Return how much memory a child wants of each device. vLLM on a GPU fills all it is given, unless the job names an
    amount."""
    rollout = warm_process.spec.get("rollout", {})
    num_bytes = warm_process.device_bytes
    if (
        warm_process.role is not Role.ROLLOUT
        or rollout.get("engine") != EngineKind.VLLM
        or settings.device != "cuda"
    ):
        return Wanted(num_bytes, usual_bytes=warm_process.usual_device_bytes)
    asked = rollout.get("engine_args", {}).get("gpu_memory_utilization")
    if isinstance(asked, int | float):
        return Wanted(max(num_bytes, int(asked * smallest_bytes(settings.devices))))
    return Wanted(num_bytes, share=settings.gpu_memory_fraction)


def smallest_bytes(devices: Sequence[Device]) -> int:
    """Return the memory that each of the devices has at least; 0 if one does not report it."""
    return min((device.memory_bytes for device in devices), default=0)


def _name(key: ChildKey) -> str:
    return f"the {NOUNS[key.role]} of {show_id(IdKind.JOB, key.job_id)}"
