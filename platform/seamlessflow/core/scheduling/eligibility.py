"""Which machine may fill which role of which job: the only module with this rule.

Each filter returns why a machine cannot fill a role for a job, or None if it can. `decide` applies them to a snapshot;
a lease, also one that succeeds a phase, applies them again to locked rows (`lease_rejection`); the answer to a
heartbeat uses them to keep child processes warm (`may_keep_warm`).
"""

from collections.abc import Callable, Sequence

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.scheduling.evidence import is_proven
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.labels import is_label
from seamlessflow.core.types.tags import Role

LEASABLE_JOB_STATES = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})
Filter = Callable[[MachineView, JobView, Role], str | None]


def lacks_tags(machine: MachineView, job: JobView, role: Role) -> str | None:
    missing = machine.missing(job.tags_of(role))
    if not missing:
        return None
    kind = "label" if all(map(is_label, missing)) else "tag"
    return f"{machine.name} lacks the {kind} {', '.join(sorted(missing))}"


def is_outside_pools(machine: MachineView, job: JobView, role: Role) -> str | None:
    if machine.pool in job.pools:
        return None
    return f"{machine.name} is in the pool {machine.pool}, which the job's project may not use"


def lacks_engine(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the machine cannot start an engine of the job's kind."""
    if role is not Role.ROLLOUT or machine.engine_kinds is None or job.engine in machine.engine_kinds:
        return None
    problem = machine.engine_problems.get(job.engine, "unknown to its supervisor")
    return f"{machine.name} cannot run the engine {job.engine}: {problem}"


def lacks_devices(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the machine has nothing left to compute on, or too few devices for an engine of the job or for
    its ranks."""
    if role is Role.AGENT:
        return None
    if machine.num_devices == 0:
        return f"every device of {machine.name} is cordoned"
    return _lacks_for_engine(machine, job) if role is Role.ROLLOUT else _lacks_for_ranks(machine, job)


def _lacks_for_engine(machine: MachineView, job: JobView) -> str | None:
    if job.engines_on(machine) > 0:
        return None
    needed = f"an engine of the job needs {job.devices_per_engine} (rollout.parallel)"
    if machine.num_devices is None:
        return f"{machine.name} has not reported its devices, and {needed}"
    devices = "1 working device" if machine.num_devices == 1 else f"{machine.num_devices} working devices"
    return f"{machine.name} has {devices}, but {needed}"


def _lacks_for_ranks(machine: MachineView, job: JobView) -> str | None:
    if machine.num_devices is None or not machine.has_gpus or job.least_ranks <= machine.num_devices:
        return None
    working = f"{machine.num_devices} working GPU{'' if machine.num_devices == 1 else 's'}"
    return (
        f"{machine.name} has {working}, but the job trains with {job.least_ranks} processes on each machine"
    )


def lacks_memory(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the role certainly needs more than the machine's devices have."""
    if job.needs is None or machine.memory is None:
        return None
    problem = job.needs.problem(role, machine.memory)
    return f"{machine.name} {problem}" if problem else None


def is_draining(machine: MachineView, job: JobView, role: Role) -> str | None:
    return f"{machine.name} is being drained" if machine.is_draining else None


def is_unheard(machine: MachineView, job: JobView, role: Role) -> str | None:
    return None if machine.is_healthy else f"{machine.name} sends no heartbeats"


def is_cordoned(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the machine is cordoned. A cordon keeps out new phases; a phase of the same job and role
    stays.
    """
    if not machine.is_cordoned:
        return None
    phase = machine.phase_of(job.id, role)
    stays = phase is not None and not phase.is_leaving
    return None if stays else f"{machine.name} is cordoned"


def is_quarantined(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the machine fails phases and gets no work for now. A phase that runs there stays."""
    quarantine = machine.quarantine
    if quarantine is None or may_be_tried(machine, role):
        return None
    phase = machine.phase_of(job.id, role)
    if phase is not None and not phase.is_leaving:
        return None
    until = f" until {quarantine.until_at:%H:%M:%S} UTC" if quarantine.until_at is not None else ""
    if quarantine.is_over:
        until = " and being tried out"
    return f"{machine.name} is in quarantine{until}: {quarantine.reason}"


def may_be_tried(machine: MachineView, role: Role) -> bool:
    """Whether the machine may get new work of the role. After a quarantine, one phase that rolls out or trains tries it
    out, and the agents of one job at a time do. Agents that were there before are no trial."""
    if machine.quarantine is None:
        return True
    if role is not Role.AGENT:
        return machine.quarantine.is_over and machine.phase is None
    tried = (phase for phase in machine.agents if phase.fence > machine.judged_fence)
    return machine.quarantine.is_over and all(is_proven(phase) for phase in tried)


def is_held(machine: MachineView, job: JobView, role: Role) -> str | None:
    taken = role is not Role.AGENT and machine.phase is not None and machine.phase.job_id != job.id
    return f"{machine.name} is held by another job" if taken else None


# Why a live phase has to leave its machine.
KEEP_FILTERS: tuple[Filter, ...] = (lacks_tags, is_outside_pools, is_draining)
LEASE_FILTERS: tuple[Filter, ...] = (
    *KEEP_FILTERS,
    lacks_engine,
    lacks_devices,
    lacks_memory,
    is_unheard,
    is_cordoned,
    is_quarantined,
    is_held,
)


# These rule a machine out until a person edits it or the job.
FIT_FILTERS: tuple[Filter, ...] = (
    lacks_tags,
    is_outside_pools,
    lacks_engine,
    lacks_devices,
    lacks_memory,
)


def lease_rejection(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return why the machine cannot be leased at this moment."""
    if job.state not in LEASABLE_JOB_STATES or job.desired is not DesiredJobState.RUN:
        return f"the job is {job.state} and should be {job.desired}"
    if (rejection := _occupied(machine, job, role)) is not None:
        return rejection
    return first_rejection(LEASE_FILTERS, machine, job, role)


def _occupied(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return why the machine has no room for another phase of this role."""
    if role is not Role.AGENT:
        return f"{machine.name} has a live phase" if machine.phase is not None else None
    if machine.phase_of(job.id, role) is not None:
        return f"{machine.name} already runs agents of the job"
    if len(machine.agents) >= machine.agent_slots:
        return f"{machine.name} runs the agents of {len(machine.agents)} jobs, as many as it may"
    return None


def passing_rejection(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return why the machine cannot be used for now, though it fits."""
    return first_rejection((is_draining, is_unheard, is_cordoned, is_quarantined), machine, job, role)


def may_keep_warm(machine: MachineView, job: JobView, role: Role) -> bool:
    """Whether a process for the role may be kept ready on the machine, whatever the machine does now."""
    return first_rejection(FIT_FILTERS, machine, job, role) is None


def first_rejection(filters: Sequence[Filter], machine: MachineView, job: JobView, role: Role) -> str | None:
    for check in filters:
        if (reason := check(machine, job, role)) is not None:
            return reason
    return None
