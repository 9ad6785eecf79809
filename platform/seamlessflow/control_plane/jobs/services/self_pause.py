"""Pauses jobs whose agents bring no rewards or whose sessions end badly together, so that no job wastes its machines.

Reads the groups that gateways finalized; writes a request to pause, by the author `platform`, with the last error of
their sessions. A job is paused when as many training groups in a row as its spec says, finalized since it was last
resumed, were dropped because too few sessions got a reward. A group that had its rewards breaks the row, even if it
was dropped for another cause; held-out tasks do not count. Long before that, a job is paused if the newest ends of its
sessions trip the breaker (`core.environment.breaker`). Invariant: an error of the agent is preferred over one of the
platform, such as that a runner is gone.
"""

import logging
from collections import defaultdict
from typing import Any
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire
from seamlessflow.core.environment.breaker import MAX_ENDS, End, breach_of
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.core.lifecycle.groups import DropCause, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, DesiredJobState
from seamlessflow.runtime.sql import statements

MAX_ERROR_CHARS = 1000
NUM_GROUPS = 64  # the newest, whose sessions are judged
_OVER = [state.value for state in TERMINAL_JOB_STATES]
SQL = statements(__name__, FailureKind, SessionState, num_groups=NUM_GROUPS)
_log = logging.getLogger(__name__)


def barren_jobs_pause() -> list[UUID]:
    """Ask every job whose agents bring no rewards to pause. Returns the jobs that were asked."""
    values = {"over": _OVER, "run": DesiredJobState.RUN.value, "cause": DropCause.TOO_FEW_REWARDED.value}
    return [job.id for job in named_rows(SQL["barren"], values) if _paused(job.id, _barren_reason(job))]


def _barren_reason(job: Any) -> str:
    evidence = (
        f"the last error: {job.error[:MAX_ERROR_CHARS]}" if job.error else "their sessions gave no reason"
    )
    return f"{job.num_groups} groups in a row were dropped because too few sessions got a reward; {evidence}"


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
    for row in named_rows(SQL["ends"], {"over": _OVER, "run": DesiredJobState.RUN.value}):
        end = End(row.group_id, row.machine, row.failure, row.is_timeout, row.reason)
        ends[row.id].append(end)
    return dict(ends)
