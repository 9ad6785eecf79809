"""Which machine may fill which role of which job: the one place for this rule.

Each filter returns why a machine cannot fill a role for a job, or None if it can. `decide` applies them to a snapshot;
a lease, also one that succeeds a phase, applies them again to locked rows (`lease_rejection`); the answer to a
heartbeat uses them to keep child processes warm (`may_keep_warm`). Claims map a machine to the job that claimed it
earlier in the same cycle.
"""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.tags import Role

MAX_SHOWN = 5  # machines that a reason for waiting names; a cluster has hundreds
LEASABLE_JOB_STATES = frozenset({JobState.QUEUED, JobState.STARTING, JobState.RUNNING})
Claims = Mapping[UUID, UUID]
Filter = Callable[[MachineView, JobView, Role], str | None]


def lacks_tags(machine: MachineView, job: JobView, role: Role) -> str | None:
    missing = sorted(job.tags_of(role) - machine.tags)
    return f"{machine.name} lacks the tag {', '.join(missing)}" if missing else None


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


def lacks_rendezvous(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if trainers on other machines could not connect to the one on this machine."""
    if role is not Role.TRAIN or not job.trains_in_gangs or machine.has_rendezvous in (None, True):
        return None
    return f"the supervisor of {machine.name} is too old to train together with other machines"


def is_draining(machine: MachineView, job: JobView, role: Role) -> str | None:
    return f"{machine.name} is being drained" if machine.is_draining else None


def is_unheard(machine: MachineView, job: JobView, role: Role) -> str | None:
    return None if machine.is_healthy else f"{machine.name} sends no heartbeats"


def is_cordoned(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return a reason if the machine is cordoned. A cordon keeps out new phases; a phase of the same job and role
    stays.
    """
    phase = machine.phase_of(job.id)
    stays = phase is not None and phase.role is role and not phase.is_leaving
    return f"{machine.name} is cordoned" if machine.is_cordoned and not stays else None


def is_held(machine: MachineView, job: JobView, role: Role) -> str | None:
    taken = machine.phase is not None and machine.phase.job_id != job.id
    return f"{machine.name} is held by another job" if taken else None


# Why a live phase has to leave its machine.
KEEP_FILTERS: tuple[Filter, ...] = (lacks_tags, is_outside_pools, is_draining)
LEASE_FILTERS: tuple[Filter, ...] = (
    *KEEP_FILTERS,
    lacks_engine,
    lacks_rendezvous,
    is_unheard,
    is_cordoned,
    is_held,
)


# These rule a machine out until somebody edits it or the job.
FIT_FILTERS: tuple[Filter, ...] = (lacks_tags, is_outside_pools, lacks_engine, lacks_rendezvous)


def lease_rejection(machine: MachineView, job: JobView, role: Role) -> str | None:
    """Return why the machine cannot be leased at this moment."""
    if job.state not in LEASABLE_JOB_STATES or job.desired is not DesiredJobState.RUN:
        return f"the job is {job.state} and should be {job.desired}"
    if machine.phase is not None:
        return f"{machine.name} has a live phase"
    return first_rejection(LEASE_FILTERS, machine, job, role)


def may_keep_warm(machine: MachineView, job: JobView, role: Role) -> bool:
    """Whether a process for the role may be kept ready on the machine, whatever the machine does now."""
    return first_rejection(FIT_FILTERS, machine, job, role) is None


def first_rejection(filters: Sequence[Filter], machine: MachineView, job: JobView, role: Role) -> str | None:
    return next((reason for check in filters if (reason := check(machine, job, role)) is not None), None)


def candidates(
    machines: Sequence[MachineView], job: JobView, role: Role, claims: Claims
) -> list[MachineView]:
    """Return the machines that can fill the role now or already do."""
    return [
        machine
        for machine in machines
        if claims.get(machine.id, job.id) == job.id
        and first_rejection(LEASE_FILTERS, machine, job, role) is None
    ]


def shortage(machines: Sequence[MachineView], job: JobView, role: Role, claims: Claims) -> str:
    """Return why no machine fills the role, in one clause."""
    wanted = ", ".join(sorted(job.tags_of(role)))
    tagged = [machine for machine in machines if lacks_tags(machine, job, role) is None]
    if role is Role.TRAIN and job.trains_in_gangs:
        return _gang_shortage(tagged, job, wanted, claims)
    if not tagged:
        return f"no machine has the tags for role {role}: {wanted}"
    reasons = [_why_not(machine, job, role, claims) for machine in tagged]
    return f"no machine is free for role {role}: {_first('; ', reasons)}"


def _gang_shortage(tagged: Sequence[MachineView], job: JobView, wanted: str, claims: Claims) -> str:
    able = candidates(tagged, job, Role.TRAIN, claims)
    names = _first(", ", [machine.name for machine in able])
    text = f"{job.num_train_machines} machines must train together, but {len(able) or 'none'} can"
    text += f" ({names})" if names else ""
    if len(tagged) < job.num_train_machines:
        return f"{text}: {len(tagged) or 'none'} {'has' if len(tagged) == 1 else 'have'} the tags: {wanted}"
    reasons = [_why_not(machine, job, Role.TRAIN, claims) for machine in tagged if machine not in able]
    return f"{text}: {_first('; ', reasons) or 'one of them is needed for another role'}"


def _first(separator: str, items: Sequence[str]) -> str:
    """Return the first items as one text for the page of a job, and how many there are besides."""
    more = [f"and {len(items) - MAX_SHOWN} more"] if len(items) > MAX_SHOWN else []
    return separator.join([*items[:MAX_SHOWN], *more])


def _why_not(machine: MachineView, job: JobView, role: Role, claims: Claims) -> str:
    if claims.get(machine.id, job.id) != job.id:
        return f"{machine.name} is held by another job"
    return first_rejection(LEASE_FILTERS, machine, job, role) or f"{machine.name} is needed for another role"
