"""Reads the evidence by which machines and jobs are judged: failures of the last hour.

The cost of its one statement depends on the number of failures and not on the fleet. What has finished is judged
here, because it does not change any more; the rules themselves judge live phases.
"""

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.scheduling.evidence import PROVEN_S, REMEMBERED_S
from seamlessflow.core.scheduling.snapshot import FailureView
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.sql import statements

SQL = statements(
    __name__, FailureCause, PhaseState, Role, over=TERMINAL_JOB_STATES, proven_s=PROVEN_S, remembered_s=REMEMBERED_S
)  # fmt: skip


def failure_views() -> tuple[FailureView, ...]:
    """Return the failures that may say something about the machine or the job."""
    return tuple(
        FailureView(**row._asdict() | {"role": Role(row.role)}) for row in prepared_rows(SQL["failures"])
    )
