"""The snapshot of one scheduling cycle, read from PostgreSQL in five queries.

A machine is healthy while its newest heartbeat is younger than 15 s by the server's clock.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, Subquery

from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.common.clock import database_now
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.job_spec import spec_roles
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.scheduling.health import HEARTBEAT_LIMIT_S
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

DEFAULT_POOL = "default"
_DEMAND = """
    SELECT j.id,
           (SELECT count(*) FROM trajectory_group g WHERE g.job_id = j.id AND g.state = 'ready'),
           (SELECT count(*) FROM trajectory_group g WHERE g.job_id = j.id AND g.state = 'open'),
           (SELECT count(*) FROM trajectory_batch b WHERE b.job_id = j.id AND b.number > j.published_batch),
           (SELECT p.reason FROM scheduling_phase p WHERE p.job_id = j.id AND p.state = 'failed'
            ORDER BY p.ended_at DESC LIMIT 1),
           j.evaluation_tasks_path <> '' AND NOT EXISTS (
               SELECT FROM trajectory_evaluation e
               WHERE e.job_id = j.id AND e.version = j.latest_version AND e.state = 'finished'),
           (SELECT extract(epoch FROM now() - g.ready_at) FROM trajectory_group g
            WHERE g.job_id = j.id AND g.state = 'ready' ORDER BY g.ready_at
            OFFSET (j.spec->'rollout'->>'groups_per_batch')::int - 1 LIMIT 1),
           (SELECT extract(epoch FROM max(v.published_at) - min(v.published_at)) / nullif(count(*) - 1, 0)
            FROM policies_policyversion v WHERE v.job_id = j.id AND v.version > j.latest_version - 5),
           (SELECT avg(extract(epoch FROM t.active_at - before.draining_at + after.active_at - t.ended_at))
            FROM (SELECT * FROM scheduling_phase p WHERE p.job_id = j.id AND p.role = 'train'
                  ORDER BY p.leased_at DESC LIMIT 5) t
            JOIN scheduling_phase before ON before.machine_id = t.machine_id AND before.fence = (
                SELECT max(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence < t.fence)
            JOIN scheduling_phase after ON after.machine_id = t.machine_id AND after.fence = (
                SELECT min(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence > t.fence)
            WHERE t.num_batches IS NOT NULL AND before.role = 'rollout' AND after.role = 'rollout')
    FROM jobs_job j WHERE j.state <> ALL(%s)
"""


@dataclass(frozen=True, slots=True)
class _Demand:
    num_ready_groups: int = 0
    num_open_groups: int = 0
    num_unpublished_batches: int = 0
    last_failure: str = ""
    awaits_evaluation: bool = False
    due_age_s: float = 0.0
    batch_interval_s: float = 0.0
    hand_over_s: float = 0.0


def snapshot_load(*, may_evict: bool = True) -> Snapshot:
    now = database_now()
    phases = {phase.machine_id: _phase_view(phase, now) for phase in _live_phases()}
    machines = tuple(
        _machine_view(machine, phases.get(machine.id), now)
        for machine in Machine.objects.select_related("heartbeat")
    )
    demands, granted = _demands(), _granted_projects()
    rows = Job.objects.exclude(state__in=TERMINAL_JOB_STATES).order_by("created_at", "id")
    jobs = tuple(
        _job_view(job, order, demands.get(job.id, _Demand()), _pools(job.project_id, machines, granted))
        for order, job in enumerate(rows)
    )
    return Snapshot(machines=machines, jobs=jobs, may_evict=may_evict)


def _live_phases() -> list[Phase]:
    """With what became of the other members of their gangs."""
    fellows = Phase.objects.filter(gang_id=OuterRef("gang_id"))
    failed = fellows.filter(state=PhaseState.FAILED).order_by("ended_at")
    live = Phase.objects.filter(state__in=LIVE_PHASE_STATES).annotate(
        gang_failure=Subquery(failed.values("reason")[:1]),
        gang_has_ended=Exists(fellows.filter(state=PhaseState.ENDED)),
    )
    return list(live.order_by("id"))


def _gang_view(phase: Phase) -> GangView | None:
    if phase.gang_id is None or phase.gang_member is None:
        return None
    seen: Any = phase  # annotated by `_live_phases`
    failure = None if seen.gang_failure is None else seen.gang_failure or "it failed"
    return GangView(
        id=phase.gang_id,
        member=phase.gang_member,
        failure=failure or "",
        has_ended=seen.gang_has_ended,
    )


def _phase_view(phase: Phase, now: datetime) -> PhaseView:
    since = phase.leased_at
    if phase.state == PhaseState.DRAINING and phase.draining_at is not None:
        since = phase.draining_at
    elif phase.state == PhaseState.ACTIVE and phase.active_at is not None:
        since = phase.active_at
    return PhaseView(
        id=phase.id,
        job_id=phase.job_id,
        role=Role(phase.role),
        state=PhaseState(phase.state),
        fence=phase.fence,
        desired_version=phase.desired_version,
        served_version=phase.served_version,
        age_s=(now - since).total_seconds(),
        gang=_gang_view(phase),
    )


def _machine_view(machine: Machine, phase: PhaseView | None, now: datetime) -> MachineView:
    heartbeat = getattr(machine, "heartbeat", None)
    unheard_s = float("inf") if heartbeat is None else (now - heartbeat.received_at).total_seconds()
    said: dict[str, Any] = {} if heartbeat is None else heartbeat.capabilities
    return MachineView(
        id=machine.id,
        name=machine.name,
        tags=frozenset(machine.tags),
        is_healthy=unheard_s <= HEARTBEAT_LIMIT_S,
        is_cordoned=machine.is_cordoned,
        is_draining=machine.is_draining,
        pool=machine.pool,
        unheard_s=unheard_s,
        engine_kinds=frozenset(said["engine_kinds"]) if "engine_kinds" in said else None,
        engine_problems=said.get("engine_problems", {}),
        has_rendezvous=bool(said.get("rendezvous")) if said else None,
        phase=phase,
    )


def _demands() -> dict[UUID, _Demand]:
    with connection.cursor() as cursor:
        cursor.execute(_DEMAND, [[state.value for state in TERMINAL_JOB_STATES]])
        return {
            job_id: _Demand(
                ready, opened, unpublished, reason or "", awaits, *(float(value or 0) for value in measured)
            )
            for job_id, ready, opened, unpublished, reason, awaits, *measured in cursor.fetchall()
        }


def _granted_projects() -> dict[str, set[UUID]]:
    granted: dict[str, set[UUID]] = defaultdict(set)
    for pool, project_id in PoolGrant.objects.values_list("pool", "project_id"):
        granted[pool].add(project_id)
    return granted


def _pools(
    project_id: UUID, machines: tuple[MachineView, ...], granted: dict[str, set[UUID]]
) -> frozenset[str]:
    """The default pool is open to all until somebody is granted it."""
    names = {machine.pool for machine in machines}
    is_open = {pool for pool in names if pool == DEFAULT_POOL and pool not in granted}
    return frozenset(is_open | {pool for pool in names if project_id in granted.get(pool, ())})


def _job_view(job: Job, order: int, demand: _Demand, pools: frozenset[str]) -> JobView:
    spec: dict[str, Any] = job.spec
    placement = spec["placement"]
    return JobView(
        id=job.id,
        order=order,
        state=JobState(job.state),
        desired=DesiredJobState(job.desired),
        group_size=spec["rollout"]["group_size"],
        groups_per_batch=spec["rollout"]["groups_per_batch"],
        num_updates=spec["train"]["num_updates"],
        latest_version=job.latest_version,
        published_batch=job.published_batch,
        num_ready_groups=demand.num_ready_groups,
        num_unpublished_batches=demand.num_unpublished_batches,
        num_open_groups=demand.num_open_groups,
        max_staleness=spec["algorithm"]["max_staleness"],
        hand_over_s=demand.hand_over_s,
        batch_interval_s=demand.batch_interval_s,
        due_age_s=demand.due_age_s,
        awaits_evaluation=demand.awaits_evaluation,
        num_failures=job.num_failures,
        last_failure=demand.last_failure,
        pause_reason=job.pause_reason,
        has_external_agents=spec["environment"]["name"] == "external",
        has_rollout=Role.ROLLOUT in spec_roles(spec),
        engine=spec["rollout"]["engine"],
        pools=pools,
        rollout_tags=frozenset(placement["rollout"]),
        train_tags=frozenset(placement["train"]),
        num_train_machines=spec["train"].get("num_machines", 1),
        agent_tags=frozenset(placement["agent"]),
    )


def live_phase_conflict(*, job_id: UUID, role: Role) -> Q:
    """Live phases of a job in one role."""
    return Q(job_id=job_id, role=role.value, state__in=LIVE_PHASE_STATES)
