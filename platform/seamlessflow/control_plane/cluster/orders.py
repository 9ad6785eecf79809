"""The answer to a heartbeat: the machine's orders and warm_processes, made anew each time from what is desired.

Invariant: nothing here depends on what was answered before, so a lost answer costs latency only.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import BooleanField, Case, Exists, OuterRef, Q, When

from seamlessflow.control_plane.cluster.gangs import awaited_gang, gang_orders
from seamlessflow.control_plane.cluster.models import OPEN_POOL, Machine, PoolGrant
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.job_spec import ROLES_OF_ENVIRONMENT, spec_roles
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.credentials import PhaseClaims, front_token, phase_credential_sign
from seamlessflow.core.protocol.worker import (
    GangOrder,
    HeartbeatReply,
    PhaseOrder,
    WarmProcess,
    WeightsReference,
)
from seamlessflow.core.types.tags import Role

HEARTBEAT_INTERVAL_S = 1.0
CREDENTIAL_TTL_S = 24 * 3600
# WarmProcess children hold memory: a machine starts none ahead for more jobs than this.
MAX_WARM_JOBS = 4

VersionUris = Mapping[tuple[UUID, int], str]


def reply_build(
    *, machine: Machine, phases: Sequence[Phase], num_intervals_acked: int, now: datetime
) -> HeartbeatReply:
    jobs = _warm_jobs(machine, phases)
    uris, gangs = _version_uris(phases, jobs), gang_orders(phases)
    return HeartbeatReply(
        machine_id=machine.id,
        name=machine.name,
        tags=machine.tags,
        orders=[_order(phase, uris, gangs.get(phase.id), now) for phase in phases],
        warm_processes=[_warm_process(job, role, uris) for job in jobs for role in _roles_here(job, machine)],
        interval_s=HEARTBEAT_INTERVAL_S,
        num_intervals_acked=num_intervals_acked,
        is_cordoned=machine.is_cordoned,
        awaits_gang_of=None if phases else awaited_gang(machine),
    )


def _warm_jobs(machine: Machine, phases: Sequence[Phase]) -> list[Job]:
    """Jobs at work whose children may be here: those it works for first, then the oldest, `MAX_WARM_JOBS` at most.

    Chosen by the database: a specification is large, and every machine asks each second.
    """
    grants = PoolGrant.objects.filter(pool=machine.pool)
    may_use = Exists(grants.filter(project_id=OuterRef("project_id")))
    working = {phase.job_id for phase in phases}
    jobs = Job.objects.filter(
        may_use | ~Exists(grants) if machine.pool == OPEN_POOL else may_use,
        _fits_here(machine),
        state__in=(JobState.STARTING, JobState.RUNNING),
        desired=DesiredJobState.RUN,
    )
    if machine.is_cordoned or machine.is_draining:
        jobs = jobs.filter(id__in=working)
    if working:
        is_elsewhere = Case(When(id__in=working, then=False), default=True, output_field=BooleanField())
        return list(jobs.order_by(is_elsewhere, "created_at", "id")[:MAX_WARM_JOBS])
    return list(jobs.order_by("created_at", "id")[:MAX_WARM_JOBS])


def _fits_here(machine: Machine) -> Q:
    """Jobs with a role that the machine's tags allow: `_roles_here`, as SQL."""
    tags = sorted(set(machine.tags))
    fits = Q(pk__in=[])
    for role in set(Role) & set(tags):
        without = [name for name, roles in ROLES_OF_ENVIRONMENT.items() if role not in roles]
        wanted = Q(**{f"spec__placement__{role}__contained_by": tags})
        fits |= wanted & ~Q(spec__environment__name__in=without)
    return fits


def _roles_here(job: Job, machine: Machine) -> list[Role]:
    tags = set(machine.tags)
    wanted = job.spec["placement"]
    return [role for role in spec_roles(job.spec) if {role.value, *wanted[role.value]} <= tags]


def _version_uris(phases: Iterable[Phase], jobs: Iterable[Job]) -> VersionUris:
    """Where the weights are that orders and warm_processes name: one query."""
    wanted = {(job.id, job.latest_version) for job in jobs}
    wanted |= {(phase.job_id, _version(phase)) for phase in phases}
    if not wanted:
        return {}
    condition = Q()
    for job_id, version in wanted:
        condition |= Q(job_id=job_id, version=version)
    rows = PolicyVersion.objects.filter(condition).values_list("job_id", "version", "uri")
    return {(job_id, version): uri for job_id, version, uri in rows}


def _version(phase: Phase) -> int:
    """Engines serve what is desired of them; a trainer begins from the newest."""
    latest: int = phase.latest_version  # type: ignore[attr-defined]  # annotated by the caller's query
    return phase.desired_version if phase.role == Role.ROLLOUT else latest


def _order(phase: Phase, uris: VersionUris, gang: GangOrder | None, now: datetime) -> PhaseOrder:
    version, follows = _version(phase), gang is not None and not gang.leads
    claims = PhaseClaims(
        phase_id=phase.id,
        job_id=phase.job_id,
        project_id=phase.project_id,
        machine_id=phase.machine_id,
        role=Role(phase.role),
        fence=phase.fence,
        expires_at_s=int(now.timestamp()) + CREDENTIAL_TTL_S,
    )
    secret = settings.SEAMLESSFLOW_SECRET_KEY
    return PhaseOrder(
        phase_id=phase.id,
        fence=phase.fence,
        role=Role(phase.role),
        job_id=phase.job_id,
        project_id=phase.project_id,
        is_draining=phase.state == PhaseState.DRAINING,
        drain_grace_s=phase.drain_grace_s,
        credential="" if follows else phase_credential_sign(claims, secret=secret),
        front_token=front_token(phase.id, phase.fence, secret=secret),
        weights=WeightsReference(version=version, uri=uris[phase.job_id, version]),
        num_batches=phase.num_batches,
        gang=gang,
    )


def _warm_process(job: Job, role: Role, uris: VersionUris) -> WarmProcess:
    return WarmProcess(
        job_id=job.id,
        project_id=job.project_id,
        role=role,
        spec=job.spec,
        model_path=job.model_path,
        weights=WeightsReference(version=job.latest_version, uri=uris[job.id, job.latest_version]),
        artifact_root=settings.ARTIFACT_ROOT_URL,
        gateway_url=settings.GATEWAY_URL,
        control_plane_url=settings.WEB_URL,
    )
