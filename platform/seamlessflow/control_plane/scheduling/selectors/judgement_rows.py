"""Reads the evidence by which machines and jobs are judged: failures of the last hour.

The cost of its one statement depends on the number of failures and not on the fleet. What has finished is judged
here, because it does not change any more; the rules themselves judge live phases.
"""

# ruff: noqa: S608 - statements are put together from constants

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.scheduling.evidence import PROVEN_S, REMEMBERED_S
from seamlessflow.core.scheduling.snapshot import FailureView
from seamlessflow.core.types.tags import Role

_OVER = ", ".join(f"'{state}'" for state in sorted(TERMINAL_JOB_STATES))
_WAS_LONG = f"p.ended_at - p.active_at >= interval '{PROVEN_S:g} seconds'"
_ENDED_WELL = f"(p.state = '{PhaseState.ENDED}' AND p.active_at IS NOT NULL)"
_FAILURES = f"""
    SELECT f.machine_id, f.job_id, f.role, f.fence, f.reason,
           extract(epoch FROM statement_timestamp() - f.ended_at)::float8 AS age_s,
           EXISTS (SELECT FROM scheduling_phase p
                   WHERE p.machine_id = f.machine_id AND p.fence > f.fence AND ({_ENDED_WELL} OR {_WAS_LONG})
                         AND (p.role = '{Role.AGENT}') = (f.role = '{Role.AGENT}')) AS machine_works,
           EXISTS (SELECT FROM scheduling_phase p
                   WHERE p.job_id = f.job_id AND p.role = f.role AND p.leased_at > f.leased_at
                         AND p.machine_id <> f.machine_id AND {_WAS_LONG}) AS job_works
    FROM scheduling_phase f
    JOIN jobs_job j ON j.id = f.job_id AND j.state NOT IN ({_OVER})
    WHERE f.failure_cause = '{FailureCause.WORK}'
          AND f.ended_at > statement_timestamp() - interval '{REMEMBERED_S:g} seconds'
"""


def failure_views() -> tuple[FailureView, ...]:
    """Return the failures that may say something about the machine or the job."""
    return tuple(FailureView(**row._asdict() | {"role": Role(row.role)}) for row in prepared_rows(_FAILURES))
