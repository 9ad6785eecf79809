"""Builds the answer to a heartbeat: the machine's orders and warm processes, from the desired state.

Invariant: nothing here depends on an earlier answer, so a lost answer costs latency only.
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings

from seamlessflow.control_plane.common.resolved_specs import ResolvedSpec
from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.scheduling.selectors.snapshot_views import job_view, reported_fields
from seamlessflow.control_plane.worker_protocol.beats import (
    JOBS_PER_PAGE,
    SeenJob,
    SeenMachine,
    SeenPhase,
    jobs_see,
)
from seamlessflow.control_plane.worker_protocol.gangs import awaited_gang, gang_orders
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
from seamlessflow.core.scheduling.snapshot import MachineView
from seamlessflow.core.scheduling.warm import MAX_WARM_JOBS, WarmCandidate, leaves_checkpoint, warm_choose
from seamlessflow.core.sizing.job_needs import DeviceMemory
from seamlessflow.core.types.pools import pools_usable
from seamlessflow.core.types.tags import Role

CREDENTIAL_TTL_S = 24 * 3600


def reply_build(
    machine: SeenMachine, *, num_intervals_acked: int, interval_s: float, now: datetime
) -> HeartbeatReply:
    gangs = gang_orders(machine.phases)
    able = {one.job.id: one for one in _able_jobs(machine)}
    only_agents = _only_agents(machine)
    candidates = [_candidate(one.job, only_agents) for one in able.values()]
    saving = {
        phase.id
        for phase in machine.phases
        if phase.role is Role.TRAIN
        and (
            machine.is_cordoned
            or leaves_checkpoint(candidates, phase.job_id)
            or able[phase.job_id].spec.spec.train.machines.are_elastic  # the next gang may be another
        )
    }
    return HeartbeatReply(
        machine_id=machine.id,
        name=machine.name,
        tags=machine.tags,
        released_devices=machine.released_devices or {},
        orders=[
            _order(machine.id, phase, gangs.get(phase.id), now, is_saving=phase.id in saving)
            for phase in machine.phases
        ],
        warm_processes=[
            _warm_process(able[job_id], role)
            for job_id in warm_choose(candidates)
            for role in able[job_id].roles
        ],
        interval_s=interval_s,
        num_intervals_acked=num_intervals_acked,
        is_cordoned=machine.is_cordoned,
        awaits_gang_of=awaited_gang(machine),
    )


@dataclass(frozen=True, slots=True)
class _AbleJob:
    """A job that may have children on the machine."""

    job: SeenJob
    spec: ResolvedSpec
    roles: list[Role]
    memory: DeviceMemory | None  # of the machine's devices


def _able_jobs(machine: SeenMachine) -> list[_AbleJob]:
    """Return as many jobs that may have children here as the choice of warm ones needs, the first to be warm first.

    Every machine asks with each heartbeat, so the specs come from memory instead of the database. A trainer is compared
    with more jobs than can be kept warm, to know whether it stays.
    """
    is_training = any(phase.role is Role.TRAIN for phase in machine.phases)
    num_needed = JOBS_PER_PAGE if is_training else MAX_WARM_JOBS + len(_only_agents(machine))
    view, here = _view(machine), list[_AbleJob]()
    for page in _job_pages(machine):
        specs = specs_load(job.id for job in page)
        for job in page:
            if job.id not in specs or job.uri is None:  # it was deleted meanwhile, or has no version
                continue
            roles = _roles_here(machine, view, job, specs[job.id])
            here += [_AbleJob(job, specs[job.id], roles, view.memory)] if roles else []
            if len(here) == num_needed:
                return here
    return here


def _only_agents(machine: SeenMachine) -> set[UUID]:
    """Return the jobs whose agents run on the machine, which does nothing else for them."""
    of_agents = {phase.job_id for phase in machine.phases if phase.role is Role.AGENT}
    return of_agents - {phase.job_id for phase in machine.phases if phase.role is not Role.AGENT}


def _candidate(job: SeenJob, only_agents: Collection[UUID]) -> WarmCandidate:
    return WarmCandidate(
        job_id=job.id,
        order=job.created_at.timestamp(),
        is_at_work=job.is_at_work,
        is_next=job.is_next,
        has_trainer_state=job.has_trainer_state,
        has_trained=job.has_trained,
        runs_agents=job.id in only_agents,
    )


def _job_pages(machine: SeenMachine) -> Iterator[list[SeenJob]]:
    """Yield running jobs in the order in which they are kept warm. Usually the first page suffices."""
    page = machine.jobs
    for offset in itertools.count(JOBS_PER_PAGE, JOBS_PER_PAGE):
        yield page
        if len(page) < JOBS_PER_PAGE:
            return
        page = jobs_see(machine_id=machine.id, offset=offset)


def _view(machine: SeenMachine) -> MachineView:
    """Return the machine as the rules on warm processes read it: without phases and times of heartbeats."""
    return MachineView(
        id=machine.id,
        name=machine.name,
        tags=frozenset(machine.tags),
        pool=machine.pool,
        **reported_fields(machine.capabilities or {}),
    )


def _roles_here(machine: SeenMachine, view: MachineView, job: SeenJob, resolved: ResolvedSpec) -> list[Role]:
    pools = pools_usable({machine.pool: machine.granted}, [job.project_id])
    wanted = job_view(job.id, resolved, pools)
    return [role for role in resolved.spec.roles if may_keep_warm(view, wanted, role)]


def _order(
    machine_id: UUID, phase: SeenPhase, gang: GangOrder | None, now: datetime, *, is_saving: bool
) -> PhaseOrder:
    follows = gang is not None and not gang.leads
    claims = PhaseClaims(
        phase_id=phase.id,
        job_id=phase.job_id,
        project_id=phase.project_id,
        machine_id=machine_id,
        role=phase.role,
        fence=phase.fence,
        expires_at_s=int(now.timestamp()) + CREDENTIAL_TTL_S,
    )
    secret = settings.SEAMLESSFLOW_SECRET_KEY
    return PhaseOrder(
        phase_id=phase.id,
        fence=phase.fence,
        role=phase.role,
        job_id=phase.job_id,
        project_id=phase.project_id,
        is_draining=phase.state is PhaseState.DRAINING,
        drain_grace_s=phase.drain_grace_s,
        credential="" if follows else phase_credential_sign(claims, secret=secret),
        front_token=front_token(phase.id, phase.fence, secret=secret),
        weights=WeightsReference(version=phase.version, uri=phase.uri),
        num_batches=phase.num_batches,
        gang=gang,
        leaves_checkpoint=is_saving,
    )


def _warm_process(warm: _AbleJob, role: Role) -> WarmProcess:
    job, needs, memory = warm.job, warm.spec.needs, warm.memory
    assert job.uri is not None  # such jobs are left out
    certain, usual = (0, 0) if needs is None or memory is None else needs.bytes_at_work(role, memory)
    return WarmProcess(
        job_id=job.id,
        project_id=job.project_id,
        role=role,
        spec=dict(warm.spec.document),
        model_path=job.model_path,
        weights=WeightsReference(version=job.version, uri=job.uri),
        artifact_root=settings.ARTIFACT_ROOT_URL,
        gateway_url=settings.GATEWAY_URL,
        control_plane_url=settings.WEB_URL,
        device_bytes=certain,
        usual_device_bytes=usual,
    )
