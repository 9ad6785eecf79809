"""How long machines worked for each project, from the ledger and the intervals that are still open.

Takes a span of time. Returns machine-seconds by project, in one query: the time of every interval within
the span and, of machines that report, the time since their last interval, for the job of their live phase. As in the
ledger, agents count only on a machine that does nothing else: the agents of several jobs count for none.
"""

# ruff: noqa: S608 - the statement is put together from constants, values are parameters

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import connection

from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.tags import Role

_LIVE = ", ".join(f"'{state}'" for state in sorted(LIVE_PHASE_STATES))
_SECONDS = f"""
    SELECT project_id, extract(epoch FROM sum(least(ended_at, %(until)s) - greatest(started_at, %(since)s)))::float8
    FROM (
        SELECT i.project_id, i.started_at, i.ended_at FROM telemetry_ledgerinterval i
        WHERE i.ended_at > %(since)s AND i.started_at < %(until)s AND i.project_id = ANY(%(projects)s)
        UNION ALL
        SELECT p.project_id, greatest(h.open_since_at, p.leased_at), h.received_at FROM scheduling_phase p
        JOIN cluster_machineheartbeat h ON h.machine_id = p.machine_id
        WHERE p.state IN ({_LIVE}) AND p.project_id = ANY(%(projects)s)
              AND (p.role <> '{Role.AGENT}' OR NOT EXISTS (
                  SELECT FROM scheduling_phase other WHERE other.machine_id = p.machine_id AND other.id <> p.id
                                                           AND other.state IN ({_LIVE})))
    ) spans
    WHERE least(ended_at, %(until)s) > greatest(started_at, %(since)s)
    GROUP BY project_id
"""


def project_seconds(*, project_ids: Collection[UUID], since: datetime, until: datetime) -> dict[UUID, float]:
    """Return the machine-seconds of each project that had any."""
    with connection.cursor() as cursor:
        cursor.execute(_SECONDS, {"projects": list(project_ids), "since": since, "until": until})
        return dict(cursor.fetchall())
