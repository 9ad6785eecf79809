"""Pauses jobs whose agents bring no rewards, so that a broken agent does not hold machines for ever.

Reads the groups that gateways finalized; writes a request to pause, by the author `platform`, with the last error of
their sessions. A job is paused when as many training groups in a row as its spec says, finalized since it was last
resumed, were dropped because too few sessions got a reward. A group that had its rewards breaks the row, even if it
was dropped for another cause; held-out tasks do not count.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import logging
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.services import PLATFORM, job_desire
from seamlessflow.core.lifecycle.groups import DropCause, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState

MAX_ERROR_CHARS = 1000
# 8: of jobs whose stored spec says nothing.
_BARREN = f"""
    SELECT j.id, j.num, (SELECT s.reason FROM trajectory_session s
                         WHERE s.group_id = row.newest AND s.state = '{SessionState.FAILED}' AND s.reason <> ''
                         ORDER BY s.closed_at DESC NULLS LAST LIMIT 1)
    FROM (SELECT id, coalesce((spec->'environment'->>'pause_after_dropped_groups')::int, 8) AS num,
                 greatest(created_at, resumed_at) AS since
          FROM jobs_job WHERE state <> ALL(%s) AND desired = %s) j
    CROSS JOIN LATERAL (
        SELECT count(*) AS num, bool_and(g.drop_cause = %s) AS is_barren,
               (array_agg(g.id ORDER BY g.finalized_at DESC))[1] AS newest
        FROM (SELECT id, drop_cause, finalized_at FROM trajectory_group
              WHERE job_id = j.id AND evaluation_version IS NULL AND finalized_at > j.since
              ORDER BY finalized_at DESC LIMIT j.num) g) row
    WHERE row.num = j.num AND row.is_barren"""
_log = logging.getLogger(__name__)


def barren_jobs_pause() -> list[UUID]:
    """Ask every job whose agents bring no rewards to pause. Returns the jobs that were asked."""
    paused = []
    for job_id, num_groups, error in _barren_jobs():
        said = f"the last error: {error[:MAX_ERROR_CHARS]}" if error else "their sessions gave no reason"
        reason = f"{num_groups} groups in a row were dropped because too few sessions got a reward; {said}"
        try:
            job_desire(job_id=job_id, desired=DesiredJobState.PAUSE, reason=reason, author=PLATFORM)
        except ApplicationError as fault:  # somebody ended or cancelled it meanwhile
            _log.info("job %s is not paused: %s", job_id, fault)
            continue
        _log.warning("job %s pauses itself: %s", job_id, reason)
        paused.append(job_id)
    return paused


def _barren_jobs() -> list[tuple[UUID, int, str | None]]:
    with connection.cursor() as cursor:
        terminal = [state.value for state in TERMINAL_JOB_STATES]
        cursor.execute(_BARREN, [terminal, DesiredJobState.RUN.value, DropCause.TOO_FEW_REWARDED.value])
        return list(cursor.fetchall())
