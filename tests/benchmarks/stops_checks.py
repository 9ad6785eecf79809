"""What must hold for a job after a process was stopped, read from the rows and events themselves.

It takes the database and a job that is over, and returns sentences about what is wrong and the
events that tell of it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg

# Each finds rows that must not exist.
CHECKS: Mapping[str, str] = {
    "the job did not complete": """
        SELECT state, state_reason FROM jobs_job
        WHERE id = %(job)s AND (state <> 'completed' OR latest_version <> %(num_updates)s)""",
    "a session ended as a timeout": """
        SELECT id, reason FROM trajectory_session WHERE job_id = %(job)s AND is_timeout""",
    "a version is missing, or its batch is not the one before plus one": """
        SELECT n FROM generate_series(1, %(num_updates)s) n
        LEFT JOIN policies_policyversion v ON v.job_id = %(job)s AND v.version = n AND v.batch_number = n
        WHERE v.id IS NULL""",
    "a group is in a batch and dropped, or batched without a batch": """
        SELECT id FROM trajectory_group WHERE job_id = %(job)s AND state IN ('batched', 'dropped')
        AND (state = 'batched') <> (batch_number IS NOT NULL)""",
    "an acknowledged turn is recorded twice": """
        SELECT session_id, request_digest FROM trajectory_node
        WHERE job_id = %(job)s AND kind = 2 AND NOT is_partial AND request_digest IS NOT NULL
        GROUP BY session_id, request_digest HAVING count(DISTINCT turn_id) > 1""",
    "an answer holds more tokens than a turn may": """
        SELECT n.session_id, n.num_tokens FROM trajectory_node n JOIN jobs_job j ON j.id = n.job_id
        WHERE n.job_id = %(job)s AND n.kind = 2
        AND n.num_tokens > (j.spec->'rollout'->>'max_tokens_per_turn')::int""",
    "a task has two outcomes for one place in its group": """
        SELECT group_id, slot FROM trajectory_session WHERE job_id = %(job)s AND reward IS NOT NULL
        GROUP BY group_id, slot HAVING count(*) > 1""",
    "an engine that was suspected neither rejoined nor was replaced": """
        SELECT e.data FROM common_event e WHERE e.job_id = %(job)s AND e.kind = 'engine.suspected'
        AND NOT EXISTS (SELECT 1 FROM common_event r WHERE r.job_id = e.job_id AND r.id > e.id
            AND (r.kind = 'engine.rejoined' AND r.data->>'phase_id' = e.data->>'phase_id'
                 OR r.kind = 'phase.state' AND r.to_state IN ('failed', 'ended', 'draining')
                    AND r.subject_id::text = e.data->>'phase_id'))""",
}


def faults_found(database_url: str, job_id: UUID, *, num_updates: int) -> tuple[list[str], list[str]]:
    """Return what is wrong, and what the events say went wrong on the way."""
    values = {"job": job_id, "num_updates": num_updates}
    with psycopg.connect(database_url) as connection:
        faults = [
            f"{said}: {_shown(rows)}"
            for said, query in CHECKS.items()
            if (rows := connection.execute(query, values).fetchall())
        ]
        events = connection.execute(
            """SELECT kind, to_state, reason FROM common_event WHERE job_id = %s
               AND (kind LIKE 'engine.%%' OR kind = 'phase.state' AND to_state = 'failed') ORDER BY id""",
            [job_id],
        ).fetchall()
    return faults, [" ".join(filter(None, event)) for event in events]


def _shown(rows: list[tuple[Any, ...]]) -> str:
    first = ", ".join(str(value) for value in rows[0])
    return first if len(rows) == 1 else f"{first} and {len(rows) - 1} more"
