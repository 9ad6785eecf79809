"""Pauses jobs whose agents bring no rewards or whose sessions end badly together, so that no job wastes its machines.

Reads the groups that gateways finalized; writes a request to pause, by the author `platform`, with the last error of
their sessions. A job is paused when as many training groups in a row as its spec says, finalized since it was last
resumed, were dropped because too few sessions got a reward. A group that had its rewards breaks the row, even if it
was dropped for another cause; held-out tasks do not count. Long before that, a job is paused if the newest ends of its
sessions trip the breaker (`core.environment.breaker`). Invariant: an error of the agent is preferred over one of the
platform, such as that a runner is gone.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import logging
from collections import defaultdict
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire
from seamlessflow.core.environment.breaker import MAX_ENDS, End, breach_of
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.lifecycle.groups import DropCause, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState

MAX_ERROR_CHARS = 1000
NUM_GROUPS = 64  # the newest, whose sessions are judged
_OF_PLATFORM = f"('{FailureKind.MACHINE}', '{FailureKind.ENGINE}')"
# 8: of jobs whose stored spec says nothing.
_BARREN = f"""
    SELECT j.id, j.num, (SELECT s.reason FROM trajectory_session s
                         WHERE s.group_id = row.newest AND s.state = '{SessionState.FAILED}' AND s.reason <> ''
                         ORDER BY s.failure IN {_OF_PLATFORM}, s.closed_at DESC NULLS LAST LIMIT 1)
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
# `finalized_at` is null while a group runs. The sessions of the newest groups are found by the groups' index.
_ENDS = f"""
    SELECT j.id, s.group_id::text, coalesce(m.name, ''), s.failure, s.is_timeout, s.reason
    FROM (SELECT id, greatest(created_at, resumed_at) AS since FROM jobs_job
          WHERE state <> ALL(%s) AND desired = %s) j
    CROSS JOIN LATERAL (SELECT id, lease_phase_id FROM trajectory_group WHERE job_id = j.id
                        ORDER BY index DESC LIMIT {NUM_GROUPS}) g
    JOIN LATERAL (SELECT group_id, failure, is_timeout, reason, closed_at FROM trajectory_session
                  WHERE group_id = g.id AND closed_at > j.since AND NOT is_requeued) s ON true
    LEFT JOIN scheduling_phase p ON p.id = g.lease_phase_id LEFT JOIN cluster_machine m ON m.id = p.machine_id
    ORDER BY j.id, s.closed_at DESC"""
_log = logging.getLogger(__name__)


def barren_jobs_pause() -> list[UUID]:
    """Ask every job whose agents bring no rewards to pause. Returns the jobs that were asked."""
    reasons = {}
    for job_id, num_groups, error in _barren_jobs():
        evidence = f"the last error: {error[:MAX_ERROR_CHARS]}" if error else "their sessions gave no reason"
        reasons[job_id] = (
            f"{num_groups} groups in a row were dropped because too few sessions got a reward; {evidence}"
        )
    return [job_id for job_id, reason in reasons.items() if _paused(job_id, reason)]


def breaches_pause() -> list[UUID]:
    """Ask every job whose sessions trip the breaker to pause. Returns the jobs that were asked."""
    breaches = {job_id: breach_of(ends[:MAX_ENDS]) for job_id, ends in _ends().items()}
    return [
        job_id
        for job_id, breach in breaches.items()
        if breach is not None and _paused(job_id, breach[:MAX_ERROR_CHARS])
    ]


def _paused(job_id: UUID, reason: str) -> bool:
    try:
        job_desire(job_id=job_id, desired=DesiredJobState.PAUSE, reason=reason, author=PLATFORM)
    except ApplicationError as fault:  # it was ended or cancelled meanwhile
        _log.info("job %s is not paused: %s", job_id, fault)
        return False
    _log.warning("job %s pauses itself: %s", job_id, reason)
    return True


def _ends() -> dict[UUID, list[End]]:
    """Return the newest ends of the sessions of each job that runs, newest first."""
    ends: defaultdict[UUID, list[End]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_ENDS, [[state.value for state in TERMINAL_JOB_STATES], DesiredJobState.RUN.value])
        for job_id, *end in cursor.fetchall():
            ends[job_id].append(End(*end))
    return dict(ends)


def _barren_jobs() -> list[tuple[UUID, int, str | None]]:
    with connection.cursor() as cursor:
        terminal = [state.value for state in TERMINAL_JOB_STATES]
        cursor.execute(_BARREN, [terminal, DesiredJobState.RUN.value, DropCause.TOO_FEW_REWARDED.value])
        return list(cursor.fetchall())
