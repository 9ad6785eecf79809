"""Reads the evidence by which machines and jobs are judged: failures of the last hour, and earlier judgements.

Each is one statement, whose cost depends on the number of failures and not on the fleet. What has finished is judged
here, because it does not change any more; the rules themselves judge live phases.
"""

# ruff: noqa: S608 - statements are put together from constants

from typing import Any
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.scheduling.evidence import PROVEN_S, REMEMBERED_S
from seamlessflow.core.scheduling.snapshot import FailureView, QuarantineView
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role

_OVER = ", ".join(f"'{state}'" for state in sorted(TERMINAL_JOB_STATES))
_EXCLUSIVE = ", ".join(f"'{role}'" for role in sorted(EXCLUSIVE_ROLES))
_WAS_LONG = f"p.ended_at - p.active_at >= interval '{PROVEN_S:g} seconds'"
_ENDED_WELL = f"(p.state = '{PhaseState.ENDED}' AND p.active_at IS NOT NULL)"
_FAILURES = f"""
    SELECT f.machine_id, f.job_id, f.role, f.fence, f.reason,
           extract(epoch FROM statement_timestamp() - f.ended_at)::float8,
           EXISTS (SELECT FROM scheduling_phase p
                   WHERE p.machine_id = f.machine_id AND p.fence > f.fence AND ({_ENDED_WELL} OR {_WAS_LONG})
                         AND (p.role = '{Role.AGENT}') = (f.role = '{Role.AGENT}')),
           EXISTS (SELECT FROM scheduling_phase p
                   WHERE p.job_id = f.job_id AND p.role = f.role AND p.leased_at > f.leased_at
                         AND p.machine_id <> f.machine_id AND {_WAS_LONG})
    FROM scheduling_phase f
    JOIN jobs_job j ON j.id = f.job_id AND j.state NOT IN ({_OVER})
    WHERE f.failure_cause = '{FailureCause.WORK}'
          AND f.ended_at > statement_timestamp() - interval '{REMEMBERED_S:g} seconds'
"""
_JUDGEMENTS = f"""
    SELECT q.machine_id, q.judged_fence, q.reason, q.num_quarantines, q.until_at, q.is_slow,
           extract(epoch FROM q.until_at - q.quarantined_at)::float8,
           extract(epoch FROM statement_timestamp() - q.quarantined_at)::float8,
           q.quarantined_at IS NOT NULL AND EXISTS (
               SELECT FROM scheduling_phase p
               WHERE p.machine_id = q.machine_id AND p.fence > q.judged_fence AND {_ENDED_WELL}
                     AND (p.role <> '{Role.AGENT}' OR NOT m.tags::text[] && ARRAY[{_EXCLUSIVE}]))
    FROM scheduling_machinejudgement q JOIN cluster_machine m ON m.id = q.machine_id
"""


def failure_views() -> tuple[FailureView, ...]:
    """Return the failures that may say something about the machine or the job."""
    return tuple(_failure_view(*row) for row in prepared_rows(_FAILURES))


def _failure_view(
    machine_id: Any,
    job_id: Any,
    role: str,
    fence: int,
    reason: str,
    age_s: float,
    machine_works: bool,
    job_works: bool,
) -> FailureView:
    return FailureView(
        machine_id=machine_id,
        job_id=job_id,
        role=Role(role),
        fence=fence,
        reason=reason,
        age_s=age_s,
        machine_works=machine_works,
        job_works=job_works,
    )


def judgements_load() -> dict[UUID, dict[str, Any]]:
    """Return the judgement fields of the views of machines that were ever judged."""
    return {row[0]: _judged_fields(*row[1:]) for row in prepared_rows(_JUDGEMENTS)}


def _judged_fields(
    judged_fence: int,
    reason: str,
    num: int,
    until_at: Any,
    is_slow: bool,
    backoff_s: float | None,
    age_s: float | None,
    is_proven: bool,
) -> dict[str, Any]:
    quarantine = None
    if backoff_s is not None and age_s is not None:
        quarantine = QuarantineView(
            reason=reason, num=num, backoff_s=backoff_s, age_s=age_s, until_at=until_at, is_proven=is_proven,
            is_slow=is_slow,
        )  # fmt: skip
    return {"judged_fence": judged_fence, "quarantine": quarantine}
