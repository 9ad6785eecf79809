"""Finds the phases to give up, because their machine is silent or they are stuck in a state.

If more machines are silent than healthy, the fault is probably ours, so eviction waits. If no
machine is healthy, eviction never happens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.scheduling.decisions import FailPhase
from seamlessflow.core.scheduling.heartbeats import HEARTBEAT_LIMIT_S
from seamlessflow.core.scheduling.snapshot import MachineView, PhaseView

SUSPICION_LIMITS = 8  # after so many times its own limit, a silence is no longer suspected to be ours
START_LIMIT_S = 1800.0
DRAIN_LIMIT_S = 600.0


@dataclass(slots=True)
class Patience:
    """Whether every machine has had enough time to send a heartbeat again, in monotonic seconds.

    Heartbeats are lost while no process can store them: before this process led, and while no machine
    reported at all. `limit_s`: the longest silence that any machine is granted.
    """

    since_s: float
    limit_s: float = HEARTBEAT_LIMIT_S

    def note(self, machines: Sequence[MachineView], now_s: float) -> None:
        self.limit_s = max((machine.unheard_limit_s for machine in machines), default=HEARTBEAT_LIMIT_S)
        if machines and not any(machine.is_healthy for machine in machines):
            self.since_s = now_s

    def is_over(self, now_s: float) -> bool:
        return now_s - self.since_s > self.limit_s


def phases_to_fail(machines: Sequence[MachineView], *, may_evict: bool) -> Iterator[FailPhase]:
    healthy = [machine for machine in machines if machine.is_healthy]
    vanished = [machine for machine in machines if not machine.is_healthy and machine.phases]
    for machine in vanished:
        if (
            may_evict
            and healthy
            and (len(vanished) <= len(healthy) or machine.unheard_s > suspicion_s(machine))
        ):
            for phase in machine.phases:
                yield _fail(machine, phase, f"{machine.name} sends no heartbeats", FailureCause.SILENCE)
    for machine in healthy:
        for phase in machine.phases:
            if phase.state is not PhaseState.ACTIVE and (reason := _stuck(phase)) is not None:
                yield _fail(machine, phase, f"on {machine.name}: {reason}", FailureCause.WORK)


def suspicion_s(machine: MachineView) -> float:
    """Return after how long a silence a machine is given up, even if most others are silent too."""
    return SUSPICION_LIMITS * machine.unheard_limit_s


def _fail(machine: MachineView, phase: PhaseView, reason: str, cause: FailureCause) -> FailPhase:
    return FailPhase(phase_id=phase.id, machine=machine.name, reason=reason, cause=cause)


def _stuck(phase: PhaseView) -> str | None:
    if phase.state in (PhaseState.LEASED, PhaseState.STARTING) and phase.age_s > START_LIMIT_S:
        return f"the {phase.role} phase did not start within {START_LIMIT_S:g} s"
    if phase.state is PhaseState.DRAINING and phase.age_s > DRAIN_LIMIT_S:
        return f"the {phase.role} phase did not drain within {DRAIN_LIMIT_S:g} s"
    return None
