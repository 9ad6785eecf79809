"""How long machines worked for each project, from the ledger and the intervals that are still open.

Takes a span of time. Returns machine-seconds by project, in one query: the time of every interval within
the span and, of machines that report, the time since their last interval, for the job of their live phase. As in the
ledger, agents count only on a machine that does nothing else: the agents of several jobs count for none.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, Role, live=LIVE_PHASE_STATES)


def project_seconds(*, project_ids: Collection[UUID], since: datetime, until: datetime) -> dict[UUID, float]:
    """Return the machine-seconds of each project that had any."""
    rows = named_rows(SQL["seconds"], {"projects": list(project_ids), "since": since, "until": until})
    return {row.project_id: row.seconds for row in rows}
