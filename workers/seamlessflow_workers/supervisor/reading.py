"""Decides which ledger state a machine is in when several things happen at once.

It takes a view of the live phases, the children and the control plane's last answer, and returns one reading. A phase
that rolls out or trains decides alone, because agents beside it use none of the machine's devices; the order of
precedence is: draining, switching or starting, what the active phase does. Without one, it is the foremost
reading of the agents; it names no job if agents of several jobs have it. Then comes why nothing runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.running import PhaseView
from seamlessflow_workers.supervisor.ledger import Reading

_DEFAULT_CAUSE = {
    Role.ROLLOUT: IdleCause.NO_REQUESTS,
    Role.TRAIN: IdleCause.NO_BATCH,
    Role.AGENT: IdleCause.NO_GROUPS,
}
# Of several agent phases, one that works decides the reading, else the first of these.
_LESS_THAN_WORK = (LedgerState.DRAINING, LedgerState.STARTING, LedgerState.IDLE)


@dataclass(frozen=True, slots=True)
class MachineView:
    phase: PhaseView | None  # the live phase that rolls out or trains
    previous_role: Role | None  # of the last phase that was active here
    is_loading: bool  # a child is being started
    warm_jobs: frozenset[UUID]
    is_cordoned: bool
    agents: tuple[PhaseView, ...] = ()  # the live agent phases
    awaits_gang_of: UUID | None = None  # the job for which it is kept free until other machines are free too


def machine_reading(view: MachineView) -> Reading:
    if view.phase is not None:
        return _phase_reading(view.phase, view.previous_role)
    return _agents_reading(view.agents) if view.agents else _vacant_reading(view)


def _agents_reading(agents: Sequence[PhaseView]) -> Reading:
    readings = [_phase_reading(phase, Role.AGENT) for phase in agents]
    foremost = min(readings, key=_rank)
    jobs = {reading.job_id for reading in readings if reading.state is foremost.state}
    return foremost if len(jobs) == 1 else replace(foremost, job_id=None)


def _rank(reading: Reading) -> int:
    return 1 + _LESS_THAN_WORK.index(reading.state) if reading.state in _LESS_THAN_WORK else 0


def _phase_reading(phase: PhaseView, previous_role: Role | None) -> Reading:
    if phase.state is PhaseState.DRAINING:
        return Reading(LedgerState.DRAINING, None, phase.job_id)
    if phase.state is not PhaseState.ACTIVE:
        if phase.is_awaiting_weights:
            return Reading(LedgerState.IDLE, IdleCause.AWAITING_WEIGHTS, phase.job_id)
        if phase.doing_cause is IdleCause.AWAITING_GANG:
            return Reading(LedgerState.IDLE, IdleCause.AWAITING_GANG, phase.job_id)
        is_switch = previous_role is not None and previous_role is not phase.role
        return Reading(LedgerState.SWITCHING if is_switch else LedgerState.STARTING, None, phase.job_id)
    if phase.doing is not None and phase.doing is not LedgerState.IDLE:
        return Reading(phase.doing, None, phase.job_id)
    if phase.role is Role.ROLLOUT and phase.num_in_flight > 0:
        return Reading(LedgerState.SERVING, None, phase.job_id, num_engines=phase.num_engines)
    return Reading(LedgerState.IDLE, phase.doing_cause or _DEFAULT_CAUSE[phase.role], phase.job_id)


def _vacant_reading(view: MachineView) -> Reading:
    if view.awaits_gang_of is not None:
        return Reading(LedgerState.IDLE, IdleCause.AWAITING_GANG, view.awaits_gang_of)
    job_id = next(iter(view.warm_jobs)) if len(view.warm_jobs) == 1 else None
    if view.is_cordoned:
        return Reading(LedgerState.IDLE, IdleCause.CORDONED, job_id)
    if view.is_loading and view.previous_role is None:
        return Reading(LedgerState.STARTING, None, job_id)
    return Reading(
        LedgerState.IDLE, IdleCause.AWAITING_ORDERS if view.warm_jobs else IdleCause.NO_JOB, job_id
    )
