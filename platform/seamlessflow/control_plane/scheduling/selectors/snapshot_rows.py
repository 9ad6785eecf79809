"""Reads machines and jobs as the scheduling rules see them: one statement each, whatever their number.

Rows become the frozen values of a snapshot without instances of models in between, because a cycle reads all of them.
Ages are measured by the database's clock when the statement begins. A lease reads the few rows that it locked through
models instead (`snapshot_views`); both judge by the same rules.
"""

# ruff: noqa: S608 - statements are put together from constants

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.control_plane.common.resolved_specs import ResolvedSpec
from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.scheduling.selectors.judgement_rows import judgements_load
from seamlessflow.control_plane.scheduling.selectors.snapshot_views import (
    gang_view,
    job_view,
    next_view,
    reported_fields,
)
from seamlessflow.core.lifecycle.groups import EvaluationState, GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.scheduling.heartbeats import unheard_limit_s
from seamlessflow.core.scheduling.passes.demand import KEPT_SHARE, agents_for, engines_for
from seamlessflow.core.scheduling.passes.unused import has_no_sessions
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView
from seamlessflow.core.types.pools import OPEN_POOL
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role

# Different texts of capabilities that are kept parsed. Like machines report like ones.
MAX_CAPABILITIES = 4096


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


_MACHINES = f"""
    SELECT m.id, m.name, m.tags::text[], m.pool, m.cost, m.is_cordoned, m.is_draining,
           extract(epoch FROM statement_timestamp() - h.received_at)::float8, coalesce(h.interval_s, 0),
           h.capabilities, h.num_in_flight,
           p.id, p.job_id, p.role, p.state, p.fence, p.desired_version, p.served_version,
           extract(epoch FROM statement_timestamp() - CASE p.state
               WHEN '{PhaseState.DRAINING}' THEN coalesce(p.draining_at, p.leased_at)
               WHEN '{PhaseState.ACTIVE}' THEN coalesce(p.active_at, p.leased_at)
               ELSE p.leased_at END)::float8,
           p.num_batches, p.next_role, p.next_job_id, p.next_num_batches, p.next_reason,
           p.gang_id, p.gang_member,
           CASE WHEN p.gang_id IS NOT NULL THEN (
               SELECT fellow.reason FROM scheduling_phase fellow
               WHERE fellow.gang_id = p.gang_id AND fellow.state = '{PhaseState.FAILED}'
               ORDER BY fellow.ended_at LIMIT 1) END,
           p.gang_id IS NOT NULL AND EXISTS (
               SELECT FROM scheduling_phase fellow
               WHERE fellow.gang_id = p.gang_id AND fellow.state = '{PhaseState.ENDED}')
    FROM cluster_machine m
    LEFT JOIN cluster_machineheartbeat h ON h.machine_id = m.id
    LEFT JOIN scheduling_phase p ON p.machine_id = m.id AND p.state IN ({_quoted(LIVE_PHASE_STATES)})
    ORDER BY m.name, p.job_id
"""
_JOBS = f"""
    SELECT j.id, j.state, j.desired, j.latest_version, j.published_batch, j.num_failures, j.pause_reason,
           j.waiting_reason,
           NOT EXISTS (SELECT FROM cluster_poolgrant granted WHERE granted.pool = '{OPEN_POOL}'),
           ARRAY(SELECT granted.pool::text FROM cluster_poolgrant granted WHERE granted.project_id = j.project_id),
           project.id, project.weight, project.machine_quota, j.name,
           extract(epoch FROM statement_timestamp() - coalesce(j.queued_at, j.created_at))::float8,
           extract(epoch FROM statement_timestamp() - j.admitted_at)::float8,
           extract(epoch FROM statement_timestamp() - (
               SELECT v.published_at FROM policies_policyversion v
               WHERE v.job_id = j.id AND v.version = j.latest_version AND v.version > 0))::float8,
           ARRAY(SELECT p.machine_id FROM scheduling_phase p
                 WHERE p.job_id = j.id AND p.role = '{Role.TRAIN}' AND p.fence = j.train_fence),
           (SELECT CASE WHEN bool_and(g.turns IS NOT NULL) THEN coalesce(sum((g.turns->>j.id::text)::int), 0) END
            FROM trajectory_gateway g)::int,
           groups.ready, groups.open,
           (SELECT count(*) FROM trajectory_batch b WHERE b.job_id = j.id AND b.number > j.published_batch),
           (SELECT p.reason FROM scheduling_phase p WHERE p.job_id = j.id AND p.state = '{PhaseState.FAILED}'
            ORDER BY p.ended_at DESC LIMIT 1),
           j.evaluation_tasks_path <> '' AND NOT EXISTS (
               SELECT FROM trajectory_evaluation e
               WHERE e.job_id = j.id AND e.version = j.latest_version AND e.state = '{EvaluationState.FINISHED}'),
           (SELECT extract(epoch FROM statement_timestamp() - g.ready_at) FROM trajectory_group g
            WHERE g.job_id = j.id AND g.state = '{GroupState.READY}' ORDER BY g.ready_at
            OFFSET (j.spec->'rollout'->>'groups_per_batch')::int - 1 LIMIT 1)::float8,
           (SELECT extract(epoch FROM max(v.published_at) - min(v.published_at)) / nullif(count(*) - 1, 0)
            FROM policies_policyversion v WHERE v.job_id = j.id AND v.version > j.latest_version - 5)::float8,
           (SELECT avg(extract(epoch FROM t.active_at - before.draining_at + after.active_at - t.ended_at))
            FROM (SELECT * FROM scheduling_phase p WHERE p.job_id = j.id AND p.role = '{Role.TRAIN}'
                  ORDER BY p.leased_at DESC LIMIT 5) t
            JOIN scheduling_phase before ON before.machine_id = t.machine_id AND before.fence = (
                SELECT max(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence < t.fence
                      AND p.role IN ({_quoted(EXCLUSIVE_ROLES)}))
            JOIN scheduling_phase after ON after.machine_id = t.machine_id AND after.fence = (
                SELECT min(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence > t.fence
                      AND p.role IN ({_quoted(EXCLUSIVE_ROLES)}))
            WHERE t.num_batches IS NOT NULL AND before.role = '{Role.ROLLOUT}' AND after.role = '{Role.ROLLOUT}'
           )::float8,
           j.priority,
           extract(epoch FROM statement_timestamp() - j.resumed_at)::float8,
           CASE WHEN (j.spec->'environment'->'num_machines'->>'max')::int > 1 THEN (
               SELECT count(*) FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id
               WHERE g.job_id = j.id AND g.state = '{GroupState.OPEN}' AND s.state = '{SessionState.OPEN}') END,
           j.owed, project.priority_ceiling,
           CASE WHEN j.spec->'environment'->>'name' = 'external' THEN (
               SELECT CASE WHEN count(*) FILTER (WHERE s.state = '{SessionState.OPEN}') = 0
                      THEN coalesce(extract(epoch FROM statement_timestamp() - max(s.closed_at)), 'infinity') END
               FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id
               WHERE g.job_id = j.id AND g.state IN ('{GroupState.READY}', '{GroupState.OPEN}')) END::float8
    FROM jobs_job j
    JOIN accounts_project project ON project.id = j.project_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE g.state = '{GroupState.READY}') AS ready,
               count(*) FILTER (WHERE g.state = '{GroupState.OPEN}') AS open
        FROM trajectory_group g
        WHERE g.job_id = j.id AND g.state IN ('{GroupState.READY}', '{GroupState.OPEN}')) groups
    WHERE j.state NOT IN ({_quoted(TERMINAL_JOB_STATES)})
    ORDER BY j.created_at, j.id
"""


def machine_views() -> tuple[MachineView, ...]:
    """Return all machines by name, each with its live phases and its judgement."""
    by_machine = itertools.groupby(prepared_rows(_MACHINES), key=itemgetter(0))
    machines = tuple(_machine_view(list(rows)) for _, rows in by_machine)
    judged = judgements_load()
    if not judged:
        return machines
    return tuple(replace(one, **judged[one.id]) if one.id in judged else one for one in machines)


def job_views() -> tuple[JobView, ...]:
    """Return the unfinished jobs in order of their creation."""
    rows = prepared_rows(_JOBS)
    specs = specs_load([row[0] for row in rows])
    # A job without a spec was deleted since.
    return tuple(_job_view(row, order, specs[row[0]]) for order, row in enumerate(rows) if row[0] in specs)


def _machine_view(rows: list[tuple[Any, ...]]) -> MachineView:
    """Return a machine from its rows: one for each live phase, or one without."""
    machine_id, name, tags, pool, cost, is_cordoned, is_draining, heard_s, interval_s = rows[0][:9]
    capabilities, num_in_flight = rows[0][9:11]
    phases = [_phase_view(num_in_flight or 0, *row[11:]) for row in rows if row[11] is not None]
    unheard_s, limit_s = float("inf") if heard_s is None else heard_s, unheard_limit_s(interval_s)
    return MachineView(
        id=machine_id,
        name=name,
        tags=frozenset(tags),
        is_healthy=unheard_s <= limit_s,
        is_cordoned=is_cordoned,
        is_draining=is_draining,
        pool=pool,
        cost=cost,
        unheard_s=unheard_s,
        unheard_limit_s=limit_s,
        phase=next((phase for phase in phases if phase.role is not Role.AGENT), None),
        agents=tuple(phase for phase in phases if phase.role is Role.AGENT),
        **_reported(capabilities),
    )


def _phase_view(
    num_in_flight: int,
    phase_id: Any,
    job_id: Any,
    role: str,
    state: str,
    fence: int,
    desired_version: int,
    served_version: int | None,
    age_s: float,
    num_batches: int | None,
    next_role: str,
    next_job_id: Any,
    next_num_batches: int | None,
    next_reason: str,
    *gang: Any,
) -> PhaseView:
    return PhaseView(
        id=phase_id,
        job_id=job_id,
        role=Role(role),
        state=PhaseState(state),
        fence=fence,
        desired_version=desired_version,
        served_version=served_version,
        age_s=age_s,
        num_in_flight=num_in_flight,
        num_batches=num_batches,
        then=next_view(next_role, next_job_id, next_num_batches, next_reason),
        gang=gang_view(*gang),
    )


@lru_cache(MAX_CAPABILITIES)
def _reported(capabilities: str | None) -> dict[str, Any]:
    return reported_fields({} if capabilities is None else json.loads(capabilities))


def _agents(num_sessions: int, spec: Any) -> dict[str, int]:
    """Return on how many machines the job's agents could and should be, as its spec allows."""
    allowed, rollout = spec.environment.num_machines, spec.rollout
    # A machine leases groups whole, so it is full once it has no room for another one.
    room = max(1, rollout.max_concurrent_sessions - rollout.group_size + 1)
    return {
        "agents_least": allowed.min,
        "agents_kept": min(agents_for(num_sessions, room * KEPT_SHARE), allowed.max),
        "agents_wanted": min(max(agents_for(num_sessions, room), allowed.min), allowed.max),
    }


def _job_view(row: tuple[Any, ...], order: int, resolved: ResolvedSpec) -> JobView:
    spec = resolved.spec
    job_id, state, desired, latest_version, published_batch, num_failures, pause_reason, waiting_reason = row[
        :8
    ]
    is_open, granted, project_id, weight, quota, name = row[8:14]
    waiting_s, admitted_s, published_s, trainer_state, num_turns = row[14:19]
    num_ready, num_open, num_unpublished, last_failure, awaits_evaluation = row[19:24]
    due_age_s, batch_interval_s, hand_over_s = (value or 0.0 for value in row[24:27])
    given_priority, resumed_s, num_sessions, owed, priority_ceiling, closed_s = row[27:]
    last_published_s = float("inf") if published_s is None else published_s
    return job_view(
        job_id,
        resolved,
        frozenset([OPEN_POOL, *granted] if is_open else granted),
        state=JobState(state),
        order=order,
        priority=spec.priority if given_priority is None else given_priority,
        priority_ceiling=priority_ceiling,
        name=name,
        project_id=project_id,
        project_weight=weight,
        project_quota=quota,
        owed=owed,
        waiting_s=waiting_s if state == JobState.QUEUED else 0.0,
        admitted_s=admitted_s or 0.0,
        published_s=last_published_s,
        has_no_sessions=has_no_sessions(
            closed_s,
            at_work_s=float("inf") if state == JobState.QUEUED else admitted_s or 0.0,
            published_s=last_published_s,
        ),
        resumed_s=float("inf") if resumed_s is None else resumed_s,
        trainer_state=frozenset(trainer_state),
        engines_wanted=None if num_turns is None else engines_for(num_turns, spec.rollout.max_num_seqs),
        **_agents(num_sessions or 0, spec),
        desired=DesiredJobState(desired),
        latest_version=latest_version,
        published_batch=published_batch,
        num_ready_groups=num_ready,
        num_open_groups=num_open,
        num_unpublished_batches=num_unpublished,
        hand_over_s=hand_over_s,
        batch_interval_s=batch_interval_s,
        due_age_s=due_age_s,
        awaits_evaluation=awaits_evaluation,
        num_failures=num_failures,
        last_failure=last_failure or "",
        pause_reason=pause_reason,
        waiting_reason=waiting_reason,
    )
