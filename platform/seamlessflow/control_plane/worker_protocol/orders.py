"""Builds the answer to a heartbeat: the machine's orders and warm processes, from the desired state.

Invariant: nothing here depends on an earlier answer, so a lost answer costs latency only.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import BooleanField, Case, Q, When

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.resolved_specs import ResolvedSpec
from seamlessflow.control_plane.jobs.selectors import specs_load
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.snapshot_views import (
    grants_load,
    job_view,
    machine_view,
    pools_of,
)
from seamlessflow.control_plane.worker_protocol.gangs import awaited_gang, gang_orders
from seamlessflow.core.job_spec import JobSpec
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
from seamlessflow.core.scheduling.eligibility import may_keep_warm
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.tags import Role

HEARTBEAT_INTERVAL_S = 1.0
CREDENTIAL_TTL_S = 24 * 3600
# Warm processes hold memory, so a machine starts them ahead of time for at most this many jobs.
MAX_WARM_JOBS = 4
JOBS_PER_PAGE = 16

VersionUris = Mapping[tuple[UUID, int], str]


def reply_build(
    *, machine: Machine, phases: Sequence[Phase], num_intervals_acked: int, now: datetime
) -> HeartbeatReply:
    warm = _warm_jobs(machine, phases, now)
    uris, gangs = _version_uris(phases, [one.job for one in warm]), gang_orders(phases)
    return HeartbeatReply(
        machine_id=machine.id,
        name=machine.name,
        tags=machine.tags,
        orders=[_order(phase, uris, gangs.get(phase.id), now) for phase in phases],
        warm_processes=[_warm_process(one, role, uris) for one in warm for role in one.roles],
        interval_s=HEARTBEAT_INTERVAL_S,
        num_intervals_acked=num_intervals_acked,
        is_cordoned=machine.is_cordoned,
        awaits_gang_of=None if phases else awaited_gang(machine),
    )


@dataclass(frozen=True, slots=True)
class _WarmJob:
    job: Job
    spec: ResolvedSpec
    roles: list[Role]


def _warm_jobs(machine: Machine, phases: Sequence[Phase], now: datetime) -> list[_WarmJob]:
    """Return at most `MAX_WARM_JOBS` jobs that may have children here: those it works for first, then the oldest.

    Every machine asks each second, so the specs come from memory instead of the database.
    """
    view, grants = machine_view(machine, None, now), grants_load(machine.pool)
    here: list[_WarmJob] = []
    for page in _job_pages(machine, {phase.job_id for phase in phases}):
        specs = specs_load(job.id for job in page)
        for job in page:
            if job.id not in specs:  # it was deleted meanwhile
                continue
            pools = pools_of(job.project_id, [machine.pool], grants)
            roles = _roles_here(view, job_view(job.id, specs[job.id].spec, pools), specs[job.id].spec)
            here += [_WarmJob(job, specs[job.id], roles)] if roles else []
            if len(here) == MAX_WARM_JOBS:
                return here
    return here


def _job_pages(machine: Machine, working: set[UUID]) -> Iterator[list[Job]]:
    """Yield running jobs: those that the machine works for first, then the oldest. Usually the first page suffices."""
    jobs = Job.objects.filter(state__in=(JobState.STARTING, JobState.RUNNING), desired=DesiredJobState.RUN)
    if machine.is_cordoned or machine.is_draining:
        jobs = jobs.filter(id__in=working)
    jobs = jobs.only("project_id", "model_path", "latest_version").order_by("created_at", "id")
    if working:
        is_elsewhere = Case(When(id__in=working, then=False), default=True, output_field=BooleanField())
        jobs = jobs.order_by(is_elsewhere, "created_at", "id")
    for start in itertools.count(step=JOBS_PER_PAGE):
        page = list(jobs[start : start + JOBS_PER_PAGE])
        yield page
        if len(page) < JOBS_PER_PAGE:
            return


def _roles_here(machine: MachineView, job: JobView, spec: JobSpec) -> list[Role]:
    return [role for role in spec.roles if may_keep_warm(machine, job, role)]


def _version_uris(phases: Iterable[Phase], jobs: Iterable[Job]) -> VersionUris:
    """Return where the weights are that orders and warm processes name, with one query."""
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
    """Return a phase's version: an engine serves its desired one, other roles begin from the newest."""
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


def _warm_process(warm: _WarmJob, role: Role, uris: VersionUris) -> WarmProcess:
    job = warm.job
    return WarmProcess(
        job_id=job.id,
        project_id=job.project_id,
        role=role,
        spec=dict(warm.spec.document),
        model_path=job.model_path,
        weights=WeightsReference(version=job.latest_version, uri=uris[job.id, job.latest_version]),
        artifact_root=settings.ARTIFACT_ROOT_URL,
        gateway_url=settings.GATEWAY_URL,
        control_plane_url=settings.WEB_URL,
    )
