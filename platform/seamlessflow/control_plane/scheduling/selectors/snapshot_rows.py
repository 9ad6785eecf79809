"""Reads machines and jobs as the scheduling rules see them: one statement each, whatever their number.

Rows become the frozen values of a snapshot without instances of models in between, because a cycle reads all of them.
Ages are measured by the database's clock when the statement begins. A lease reads its few machines by the same
statement, so what decided a lease also judges it.
"""

import itertools
import json
from collections.abc import Collection
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import Any
from uuid import UUID

from seamlessflow.control_plane.accounts.selectors.pools import grants_load
from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.control_plane.common.resolved_specs import ResolvedSpec
from seamlessflow.control_plane.jobs.selectors.jobs import specs_load
from seamlessflow.control_plane.scheduling.selectors.snapshot_views import job_view, reported_fields
from seamlessflow.core.lifecycle.groups import EvaluationState, GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.scheduling.decisions import NextPhase
from seamlessflow.core.scheduling.heartbeats import unheard_limit_s
from seamlessflow.core.scheduling.passes.demand import KEPT_SHARE, agents_for, engines_for
from seamlessflow.core.scheduling.passes.unused import has_no_sessions
from seamlessflow.core.scheduling.snapshot import GangView, JobView, MachineView, PhaseView, QuarantineView
from seamlessflow.core.types.pools import pools_usable
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role
from seamlessflow.runtime.sql import statements

# Different texts of capabilities that are kept parsed. Like machines report like ones.
MAX_CAPABILITIES = 4096
SQL = statements(
    __name__, EvaluationState, GroupState, PhaseState, Role, SessionState, live=LIVE_PHASE_STATES,
    over=TERMINAL_JOB_STATES, exclusive=EXCLUSIVE_ROLES,
)  # fmt: skip


def machine_views() -> tuple[MachineView, ...]:
    """Return all machines by name, each with its live phases and its judgement."""
    return _machine_views(prepared_rows(SQL["all_machines"]))


def machine_views_of(machine_ids: Collection[UUID]) -> tuple[MachineView, ...]:
    """Return some machines as `machine_views` does.

    A caller that locks them locks them before: a statement that waits for a lock reads other rows as of its beginning.
    """
    return _machine_views(prepared_rows(SQL["some_machines"], {"machine_ids": list(machine_ids)}))


def job_views() -> tuple[JobView, ...]:
    """Return the unfinished jobs in order of their creation."""
    rows = prepared_rows(SQL["jobs"])
    specs = specs_load([row.id for row in rows])
    grants = grants_load()
    pools = {
        project_id: pools_usable(grants, [project_id]) for project_id in {row.project_id for row in rows}
    }
    return tuple(
        _job_view(row, order, specs[row.id], pools[row.project_id])
        for order, row in enumerate(rows)
        if row.id in specs  # one without a spec was deleted since
    )


def _machine_views(rows: list[Any]) -> tuple[MachineView, ...]:
    by_machine = itertools.groupby(rows, key=attrgetter("id"))
    return tuple(_machine_view(list(of_machine)) for _, of_machine in by_machine)


def _machine_view(rows: list[Any]) -> MachineView:
    """Return a machine from its rows: one for each live phase, or one without."""
    row = rows[0]
    phases = [_phase_view(one) for one in rows if one.phase_id is not None]
    unheard_s, limit_s = inf if row.unheard_s is None else row.unheard_s, unheard_limit_s(row.interval_s)
    return MachineView(
        id=row.id,
        name=row.name,
        tags=frozenset(row.tags),
        is_healthy=unheard_s <= limit_s,
        is_cordoned=row.is_cordoned,
        is_draining=row.is_draining,
        pool=row.pool,
        cost=row.cost,
        unheard_s=unheard_s,
        unheard_limit_s=limit_s,
        phase=next((phase for phase in phases if phase.role is not Role.AGENT), None),
        agents=tuple(phase for phase in phases if phase.role is Role.AGENT),
        quarantine=None if row.quarantine_age_s is None or row.backoff_s is None else _quarantine_view(row),
        judged_fence=row.judged_fence,
        **_reported(row.capabilities),
    )


def _quarantine_view(row: Any) -> QuarantineView:
    return QuarantineView(
        reason=row.quarantine_reason,
        num=row.num_quarantines,
        backoff_s=row.backoff_s,
        age_s=row.quarantine_age_s,
        until_at=row.until_at,
        is_proven=row.is_proven,
        is_slow=row.is_slow,
    )


def _phase_view(row: Any) -> PhaseView:
    return PhaseView(
        id=row.phase_id,
        job_id=row.job_id,
        role=Role(row.role),
        state=PhaseState(row.state),
        fence=row.fence,
        desired_version=row.desired_version,
        served_version=row.served_version,
        age_s=row.phase_age_s,
        num_in_flight=row.num_in_flight,
        num_batches=row.num_batches,
        then=_next_phase(row) if row.next_role else None,
        gang=None if row.gang_id is None else _gang_view(row),
    )


def _next_phase(row: Any) -> NextPhase:
    """Return the phase that was decided to follow."""
    return NextPhase(
        role=Role(row.next_role),
        job_id=row.next_job_id,
        num_batches=row.next_num_batches,
        reason=row.next_reason,
    )


def _gang_view(row: Any) -> GangView:
    failure = row.gang_failure or ""
    return GangView(id=row.gang_id, member=row.gang_member, failure=failure, has_ended=row.gang_has_ended)


@lru_cache(MAX_CAPABILITIES)
def _reported(capabilities: str | None) -> dict[str, Any]:
    return reported_fields({} if capabilities is None else json.loads(capabilities))


def _agents(num_sessions: int, spec: Any) -> dict[str, int]:
    """Return on how many machines the job's agents could and should be, as its spec allows."""
    allowed, rollout = spec.environment.num_machines, spec.rollout
    # A machine leases groups whole, so it is full once it has no capacity for another one.
    capacity = max(1, rollout.max_concurrent_sessions - rollout.group_size + 1)
    return {
        "agents_least": allowed.min,
        "agents_kept": min(agents_for(num_sessions, capacity * KEPT_SHARE), allowed.max),
        "agents_wanted": min(max(agents_for(num_sessions, capacity), allowed.min), allowed.max),
    }


def _job_view(row: Any, order: int, resolved: ResolvedSpec, pools: frozenset[str]) -> JobView:
    spec = resolved.spec
    is_queued, admitted_s = row.state == JobState.QUEUED, row.admitted_s or 0.0
    published_s = inf if row.published_s is None else row.published_s
    return job_view(
        row.id,
        resolved,
        pools,
        state=JobState(row.state),
        order=order,
        priority=spec.priority if row.priority is None else row.priority,
        priority_ceiling=row.priority_ceiling,
        name=row.name,
        project_id=row.project_id,
        project_weight=row.project_weight,
        project_quota=row.project_quota,
        owed=row.owed,
        waiting_s=row.waiting_s if is_queued else 0.0,
        admitted_s=admitted_s,
        published_s=published_s,
        has_no_sessions=has_no_sessions(
            row.closed_s, at_work_s=inf if is_queued else admitted_s, published_s=published_s
        ),
        resumed_s=inf if row.resumed_s is None else row.resumed_s,
        trainer_state=frozenset(row.trainer_state),
        engines_wanted=None
        if row.num_turns is None
        else engines_for(row.num_turns, spec.rollout.max_num_seqs),
        **_agents(row.num_sessions or 0, spec),
        desired=DesiredJobState(row.desired),
        latest_version=row.latest_version,
        published_batch=row.published_batch,
        num_ready_groups=row.num_ready,
        num_open_groups=row.num_open,
        num_unpublished_batches=row.num_unpublished,
        hand_over_s=row.hand_over_s or 0.0,
        batch_interval_s=row.batch_interval_s or 0.0,
        due_age_s=row.due_age_s or 0.0,
        awaits_evaluation=row.awaits_evaluation,
        num_failures=row.num_failures,
        last_failure=row.last_failure or "",
        pause_reason=row.pause_reason,
        waiting_reason=row.waiting_reason,
    )
