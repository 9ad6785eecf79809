"""Applies a plan: each decision is a compare-and-set in a short transaction of its own.

Invariant: a decision that lost a race changes nothing; the next cycle decides anew. Nothing here waits for a broker:
the caller gets the wake-ups to send.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.pools import pools_of
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.database.clock import database_read
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import engines_notify, event_record
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire, job_move
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot_rows import machine_views_of
from seamlessflow.control_plane.scheduling.selectors.snapshot_views import job_view
from seamlessflow.control_plane.scheduling.services.judgements import machine_admit, machine_quarantine
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, FailureCause, PhaseState
from seamlessflow.core.scheduling.decisions import (
    AdmitMachine,
    Decision,
    DrainPhase,
    FailPhase,
    Lease,
    LeaseGang,
    MoveJob,
    NextPhase,
    PauseJob,
    Plan,
    QuarantineMachine,
    SetDesiredVersion,
    SetNext,
)
from seamlessflow.core.scheduling.eligibility import lease_rejection
from seamlessflow.core.scheduling.passes.multiplexing import BACK_TO_ROLLOUT
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role
from seamlessflow.runtime.sql import statements

AUTHOR = "scheduler"
SQL = statements(__name__, JobState, over=TERMINAL_JOB_STATES)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A doorbell to send: the machine should ask for its orders now."""

    machine: str
    phase_id: UUID
    fence: int


def plan_apply(plan: Plan) -> list[WakeUp]:
    """Apply the decisions that still hold, with a log line for each. Returns the doorbells to send."""
    wake_ups = []
    for decision in plan.decisions:
        try:
            applied = _apply(decision)
        except IntegrityError as error:
            _log.info("lost a race: %s: %s", decision, " ".join(str(error).split()))
            continue
        if applied is None:
            _log.info("no longer holds: %s", decision)
            continue
        _log.info("applied: %s", decision)
        if isinstance(applied, list):
            wake_ups += applied
    _waiting_reasons_store(plan)
    return wake_ups


def _apply(decision: Decision) -> list[WakeUp] | bool | None:
    """Apply a decision. Returns None if nothing was changed."""
    match decision:
        case Lease():
            wake_up = phase_lease(decision)
            return None if wake_up is None else [wake_up]
        case LeaseGang():
            return _gang_lease(decision)
        case DrainPhase():
            return _phase_drain(decision)
        case SetNext():
            return _next_set(decision) or None
        case FailPhase():
            done = phase_move(
                phase_id=decision.phase_id,
                to=PhaseState.FAILED,
                reason=decision.reason,
                author=AUTHOR,
                cause=decision.cause,
            )
            return done or None
        case SetDesiredVersion():
            return _version_raise(decision)
        case MoveJob():
            return (
                job_move(job_id=decision.job_id, to=decision.to_state, reason=decision.reason, author=AUTHOR)
                or None
            )
        case QuarantineMachine():
            return machine_quarantine(decision, author=AUTHOR) or None
        case AdmitMachine():
            return machine_admit(decision, author=AUTHOR) or None
        case PauseJob():
            return _pause(decision) or None


@transaction.atomic
def _pause(decision: PauseJob) -> bool:
    """Ask a job to pause on the platform's own behalf. False if it was resumed or ended meanwhile."""
    job = Job.objects.select_for_update(of=("self",), no_key=True).filter(id=decision.job_id).first()
    if job is None or job.desired != DesiredJobState.RUN or not _has_failed_since(job):
        return False
    try:
        job_desire(
            job_id=decision.job_id, desired=DesiredJobState.PAUSE, reason=decision.reason, author=PLATFORM
        )
    except ApplicationError:
        return False
    return True


def _has_failed_since(job: Job) -> bool:
    """Whether work of the job failed since a person resumed it; earlier failures are not held against it."""
    failed = Phase.objects.filter(job=job, failure_cause=FailureCause.WORK.value)
    return failed.exists() if job.resumed_at is None else failed.filter(ended_at__gt=job.resumed_at).exists()


@transaction.atomic
def phase_lease(lease: Lease) -> WakeUp | None:
    """Lease a machine under the next fence. Returns None if the machine or the job changed since the snapshot.

    The fence of a train phase also exceeds that of every earlier train phase of the job, whatever its machine: the
    job's `train_fence` then distinguishes publishers by one number.

    Locks here leave keys alone (`no_key`): a heartbeat that fails a phase locks its job, and when it commits, the
    foreign key of its ledger rows is checked against the machine. A full lock of the machine's row could deadlock.
    """
    machine = Machine.objects.select_for_update(no_key=True).filter(id=lease.machine_id).first()
    job = _job_lock(lease.job_id)
    if machine is None or job is None or _lease_rejection(machine, job, lease.role) is not None:
        return None
    if _is_beyond_quota(job, num_more=1):
        return None
    return _phase_create(machine, job, lease, fence=_fence_take([machine], job, lease.role))


@transaction.atomic
def _gang_lease(gang: LeaseGang) -> list[WakeUp] | None:
    """Lease all machines or none, under one fence that exceeds that of each machine and of the job."""
    wanted = [machine_id for machine_id, _ in gang.machines]
    # Lock in one order, as every transaction that locks several rows does: machines before jobs.
    rows = Machine.objects.select_for_update(no_key=True).filter(id__in=wanted).order_by("id")
    machines = {machine.id: machine for machine in rows}
    job = _job_lock(gang.job_id)
    if job is None or len(machines) < len(wanted) or _is_beyond_quota(job, num_more=len(wanted)):
        return None
    if any(_lease_rejection(machine, job, Role.TRAIN) is not None for machine in machines.values()):
        return None
    fence, gang_id = _fence_take(list(machines.values()), job, Role.TRAIN), new_id()
    return [
        _phase_create(
            machines[lease.machine_id], job, lease, fence=fence, gang_id=gang_id, gang_member=member
        )
        for member, lease in enumerate(gang.leases())
    ]


def _job_lock(job_id: UUID) -> Job | None:
    """Lock the job. Its project is read with it, not locked."""
    jobs = Job.objects.select_for_update(of=("self",), no_key=True).select_related("project")
    return jobs.filter(id=job_id).first()


def _is_beyond_quota(job: Job, *, num_more: int) -> bool:
    """Whether the job's project would hold more machines than it may. Leases of a project with a quota wait for one
    another, because a machine may be leased to it by a cycle and by a heartbeat at the same time."""
    if job.project.machine_quota is None:
        return False
    project = Project.objects.select_for_update(no_key=True).get(id=job.project_id)
    unfinished = Job.objects.filter(project=project).exclude(state__in=TERMINAL_JOB_STATES)
    num_held = Phase.objects.filter(job__in=unfinished, state__in=LIVE_PHASE_STATES).count()
    return project.machine_quota is not None and num_held + num_more > project.machine_quota


def _fence_take(machines: list[Machine], job: Job, role: Role) -> int:
    fence = max(machine.last_fence for machine in machines) + 1
    if role is Role.TRAIN:
        fence = max(fence, job.train_fence + 1)
        Job.objects.filter(id=job.id).update(train_fence=fence)
    Machine.objects.filter(id__in=[machine.id for machine in machines]).update(last_fence=fence)
    return fence


def _phase_create(machine: Machine, job: Job, lease: Lease, *, fence: int, **gang: Any) -> WakeUp:
    """Create the phase of a lease. `gang`: the `gang_id` and `gang_member` of a gang's member."""
    phase = Phase.objects.create(
        project_id=job.project_id,
        job=job,
        machine=machine,
        role=lease.role.value,
        fence=fence,
        reason=lease.reason,
        desired_version=job.latest_version,
        num_batches=lease.num_batches,
        leased_at=database_read(),  # later than the end of the phase before, which another process wrote
        **_next_fields(lease.then),
        **gang,
    )
    event_record(
        kind="phase.state",
        subject_type=SubjectType.PHASE,
        subject_id=phase.id,
        job_id=job.id,
        project_id=job.project_id,
        to_state=PhaseState.LEASED,
        reason=lease.reason,
        author=AUTHOR,
        data={"machine_id": str(machine.id), "role": phase.role, "num_batches": lease.num_batches},
    )
    return WakeUp(machine=machine.name, phase_id=phase.id, fence=fence)


def phase_succeed(*, phase_id: UUID, fence: int, machine_id: UUID) -> bool:
    """Lease the successor that was decided for a phase that has ended. False if there is none or it no longer fits."""
    ended = Phase.objects.filter(id=phase_id, fence=fence, machine_id=machine_id, state=PhaseState.ENDED)
    # An end is reported until it is answered, so only the newest phase of its kind may still get a successor.
    newer = Phase.objects.filter(
        machine=OuterRef("machine"), fence__gt=OuterRef("fence"), role__in=EXCLUSIVE_ROLES
    )
    newest = ended.filter(~Exists(newer)).exclude(next_role="")
    phase = newest.select_related("machine", "job", "next_job").first()
    job = None if phase is None else phase.next_job or phase.job
    if phase is None or job is None or job.published_batch >= job.resolved_spec.train.num_updates:
        return False
    role = Role(phase.next_role)
    if role is Role.TRAIN and job.resolved_spec.train.num_machines > 1:
        return False  # it waits for the other machines of its gang: the scheduler leases them together
    lease = Lease(
        machine_id=phase.machine_id,
        machine=phase.machine.name,
        job_id=job.id,
        role=role,
        num_batches=phase.next_num_batches,
        reason=phase.next_reason,
        then=BACK_TO_ROLLOUT if role is Role.TRAIN else None,
    )
    try:
        return phase_lease(lease) is not None
    except IntegrityError as error:
        _log.info("lost a race: %s: %s", lease, " ".join(str(error).split()))
        return False


def _next_fields(then: NextPhase | None) -> dict[str, Any]:
    if then is None:
        return {}
    return {
        "next_role": then.role.value,
        "next_job_id": then.job_id,
        "next_num_batches": then.num_batches,
        "next_reason": then.reason,
    }


def _next_set(decision: SetNext) -> bool:
    """Change what follows a live phase. False if it has ended meanwhile."""
    live = Phase.objects.filter(id=decision.phase_id, state__in=LIVE_PHASE_STATES)
    return bool(live.update(**_next_fields(decision.then)))


def _lease_rejection(machine: Machine, job: Job, role: Role) -> str | None:
    """Return why a lease is not possible any more, or None. The rule that decided it judges the locked rows."""
    (view,) = machine_views_of([machine.id])
    wanted = job_view(
        job.id,
        job.resolved,
        pools_of([job.project_id]),
        state=JobState(job.state),
        desired=DesiredJobState(job.desired),
    )
    if (rejection := lease_rejection(view, wanted, role)) is not None:
        return rejection
    return _surplus_rejection(job, role)


def _surplus_rejection(job: Job, role: Role) -> str | None:
    """Return why the job may not have one more phase of this role. Its row is locked, so the count stays true."""
    live = Phase.objects.filter(job=job, role=role.value, state__in=LIVE_PHASE_STATES)
    if role is Role.TRAIN and live.exists():
        return "the job already has a live train phase"
    most = job.resolved_spec.environment.num_machines.max
    # Agents that are leaving take no new groups, so those that follow them begin meanwhile.
    if role is Role.AGENT and live.exclude(state=PhaseState.DRAINING).count() >= most:
        return f"the job's agents already run on {most} machines"
    return None


def _phase_drain(decision: DrainPhase) -> list[WakeUp] | None:
    moved = phase_move(
        phase_id=decision.phase_id,
        to=PhaseState.DRAINING,
        reason=decision.reason,
        author=AUTHOR,
        fields={**_next_fields(decision.then), "drain_grace_s": decision.grace_s},
    )
    return [_wake_up_of(decision.phase_id, decision.machine)] if moved else None


@transaction.atomic
def _version_raise(decision: SetDesiredVersion) -> list[WakeUp] | None:
    phases = Phase.objects.filter(id=decision.phase_id, desired_version__lt=decision.version)
    if not phases.filter(state__in=LIVE_PHASE_STATES).update(desired_version=decision.version):
        return None
    engines_notify(job_id=Phase.objects.values_list("job_id", flat=True).get(id=decision.phase_id))
    return [_wake_up_of(decision.phase_id, decision.machine)]


def _wake_up_of(phase_id: UUID, machine: str) -> WakeUp:
    return WakeUp(machine, phase_id, Phase.objects.values_list("fence", flat=True).get(id=phase_id))


def owed_store(owed: Mapping[UUID, int]) -> None:
    """Store what jobs are owed from now on, so that every process that plans or explains reads the same."""
    if owed:
        rows = [{"id": str(job_id), "owed": num} for job_id, num in sorted(owed.items())]
        with connection.cursor() as cursor:
            cursor.execute(SQL["store_owed"], {"rows": json.dumps(rows)})


def _waiting_reasons_store(plan: Plan) -> None:
    """Write only the reasons that changed, all by one statement: most cycles write nothing."""
    changed = [
        {"job": str(job_id), "waiting": reason, "state": plan.state_reasons[job_id]}
        for job_id, reason in sorted(plan.waiting_reasons.items())
        if plan.stored_reasons.get(job_id) != reason
    ]
    if changed:
        with connection.cursor() as cursor:
            cursor.execute(SQL["store_reasons"], {"rows": json.dumps(changed)})
