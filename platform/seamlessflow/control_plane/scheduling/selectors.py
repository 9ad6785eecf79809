"""Reads the snapshot of one scheduling cycle from PostgreSQL, in a fixed number of queries.

A machine is healthy while its newest heartbeat is younger than 15 s by the server's clock.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, Subquery

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors import specs_load
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.snapshot_views import (
    grants_load,
    job_view,
    machine_view,
    phase_view,
    pools_of,
)
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import EvaluationState, GroupState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot
from seamlessflow.core.types.tags import Role

_DEMAND = f"""
    SELECT j.id,
           (SELECT count(*) FROM trajectory_group g WHERE g.job_id = j.id AND g.state = '{GroupState.READY}'),
           (SELECT count(*) FROM trajectory_group g WHERE g.job_id = j.id AND g.state = '{GroupState.OPEN}'),
           (SELECT count(*) FROM trajectory_batch b WHERE b.job_id = j.id AND b.number > j.published_batch),
           (SELECT p.reason FROM scheduling_phase p WHERE p.job_id = j.id AND p.state = '{PhaseState.FAILED}'
            ORDER BY p.ended_at DESC LIMIT 1),
           j.evaluation_tasks_path <> '' AND NOT EXISTS (
               SELECT FROM trajectory_evaluation e
               WHERE e.job_id = j.id AND e.version = j.latest_version AND e.state = '{EvaluationState.FINISHED}'),
           (SELECT extract(epoch FROM now() - g.ready_at) FROM trajectory_group g
            WHERE g.job_id = j.id AND g.state = '{GroupState.READY}' ORDER BY g.ready_at
            OFFSET (j.spec->'rollout'->>'groups_per_batch')::int - 1 LIMIT 1),
           (SELECT extract(epoch FROM max(v.published_at) - min(v.published_at)) / nullif(count(*) - 1, 0)
            FROM policies_policyversion v WHERE v.job_id = j.id AND v.version > j.latest_version - 5),
           (SELECT avg(extract(epoch FROM t.active_at - before.draining_at + after.active_at - t.ended_at))
            FROM (SELECT * FROM scheduling_phase p WHERE p.job_id = j.id AND p.role = '{Role.TRAIN}'
                  ORDER BY p.leased_at DESC LIMIT 5) t
            JOIN scheduling_phase before ON before.machine_id = t.machine_id AND before.fence = (
                SELECT max(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence < t.fence)
            JOIN scheduling_phase after ON after.machine_id = t.machine_id AND after.fence = (
                SELECT min(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence > t.fence)
            WHERE t.num_batches IS NOT NULL AND before.role = '{Role.ROLLOUT}' AND after.role = '{Role.ROLLOUT}')
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
    phases = {phase.machine_id: phase_view(phase, now) for phase in live_phases()}
    machines = tuple(
        machine_view(machine, phases.get(machine.id), now)
        for machine in Machine.objects.select_related("heartbeat")
    )
    demands, grants = _demands(), grants_load()
    specs = specs_load(demands)
    pools = {machine.pool for machine in machines}
    rows = Job.objects.exclude(state__in=TERMINAL_JOB_STATES).defer("spec", "spec_submitted", "dataset")
    jobs = tuple(
        _job_view(
            job,
            order,
            specs[job.id].spec if job.id in specs else job.resolved_spec,
            demands.get(job.id, _Demand()),
            pools_of(job.project_id, pools, grants),
        )
        for order, job in enumerate(rows.order_by("created_at", "id"))
    )
    return Snapshot(machines=machines, jobs=jobs, may_evict=may_evict)


def live_phases(**only: Any) -> list[Phase]:
    """List live phases, with what became of their gangs' other members. `only`: look-ups that narrow them."""
    fellows = Phase.objects.filter(gang_id=OuterRef("gang_id"))
    failed = fellows.filter(state=PhaseState.FAILED).order_by("ended_at")
    live = Phase.objects.filter(state__in=LIVE_PHASE_STATES, **only).annotate(
        gang_failure=Subquery(failed.values("reason")[:1]),
        gang_has_ended=Exists(fellows.filter(state=PhaseState.ENDED)),
    )
    return list(live.order_by("id"))


def _demands() -> dict[UUID, _Demand]:
    with connection.cursor() as cursor:
        cursor.execute(_DEMAND, [[state.value for state in TERMINAL_JOB_STATES]])
        return {
            job_id: _Demand(
                ready, opened, unpublished, reason or "", awaits, *(float(value or 0) for value in measured)
            )
            for job_id, ready, opened, unpublished, reason, awaits, *measured in cursor.fetchall()
        }


def _job_view(job: Job, order: int, spec: JobSpec, demand: _Demand, pools: frozenset[str]) -> JobView:
    return job_view(
        job.id,
        spec,
        pools,
        state=JobState(job.state),
        order=order,
        desired=DesiredJobState(job.desired),
        latest_version=job.latest_version,
        published_batch=job.published_batch,
        num_ready_groups=demand.num_ready_groups,
        num_unpublished_batches=demand.num_unpublished_batches,
        num_open_groups=demand.num_open_groups,
        hand_over_s=demand.hand_over_s,
        batch_interval_s=demand.batch_interval_s,
        due_age_s=demand.due_age_s,
        awaits_evaluation=demand.awaits_evaluation,
        num_failures=job.num_failures,
        last_failure=demand.last_failure,
        pause_reason=job.pause_reason,
    )


def live_phase_conflict(*, job_id: UUID, role: Role) -> Q:
    """Return the condition for live phases of a job in one role."""
    return Q(job_id=job_id, role=role.value, state__in=LIVE_PHASE_STATES)
