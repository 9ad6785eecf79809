"""Sends doorbells from a thread of its own, so that a broker that hangs never holds up a scheduling cycle.

It takes what a cycle decided, and finds engines that are behind: a publication raises the version that they should
serve, and reports them only to the scheduler. Invariant: the queue is bounded. A doorbell that does not fit is dropped,
because heartbeats repeat every order.
"""

import logging
import queue
from uuid import UUID

from seamlessflow.control_plane.cluster.services.doorbells import doorbell_send
from seamlessflow.control_plane.scheduling.services.leases import WakeUp
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.snapshot import Snapshot
from seamlessflow.runtime.tasks import thread_supervised

MAX_QUEUED = 16_384  # a publication may wake every engine of a large fleet, whose heartbeats come seldom
_log = logging.getLogger(__name__)


class WakeUpSender:
    """Sends the scheduler's wake-ups; `close` ends the thread once its queue is empty."""

    def __init__(self) -> None:
        self._queue: queue.Queue[WakeUp | None] = queue.Queue(MAX_QUEUED)
        self._thread = thread_supervised(self._run, name="doorbells")

    def send(self, wake_up: WakeUp) -> None:
        try:
            self._queue.put_nowait(wake_up)
        except queue.Full:
            _log.warning("doorbell of %s dropped: %d are queued", wake_up.machine, MAX_QUEUED)

    def close(self, *, timeout_s: float = 2.0) -> None:
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return  # the broker hangs; the thread is a daemon and ends with the process
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (wake_up := self._queue.get()) is not None:
            doorbell_send(machine_name=wake_up.machine, phase_id=wake_up.phase_id, fence=wake_up.fence)


class EnginesBehind:
    """Finds engines that serve an older version than they should, and wakes each once for a version."""

    def __init__(self) -> None:
        self._rung: dict[UUID, int] = {}  # the version of the last wake-up, by phase

    def wake_ups(self, snapshot: Snapshot) -> list[WakeUp]:
        """Return wake-ups for engines that fell behind since their last wake-up."""
        behind = [
            (machine.name, phase)
            for machine in snapshot.machines
            if (phase := machine.phase) is not None
            and phase.state is PhaseState.ACTIVE
            and phase.served_version is not None
            and phase.served_version < phase.desired_version
        ]
        fresh = [
            WakeUp(machine=name, phase_id=phase.id, fence=phase.fence)
            for name, phase in behind
            if self._rung.get(phase.id, -1) < phase.desired_version
        ]
        self._rung = {phase.id: phase.desired_version for _, phase in behind}
        return fresh
