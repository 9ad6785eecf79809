"""Summarises a job: learning, throughput, hand-overs. Read-only SQL over the data plane's tables."""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.trajectories.selectors.joins import JoinsRow, job_joins
from seamlessflow.core.lifecycle.groups import GroupState, SessionState


class Summary(TypedDict):
    """The summary of a job. Unknown values are None, never zero."""

    num_groups_trained: int
    num_groups_dropped: int
    reward_first_tenth: float | None
    reward_last_tenth: float | None
    reward_by_tenth: list[float]
    num_sessions: int
    num_turns: int
    num_sampled_tokens: int
    num_evaluation_tokens: int
    num_trained_tokens: int
    trained_tokens_per_s: float | None
    num_wasted_tokens: int
    num_turns_handed_over: int
    num_turns_continued: int
    num_turns_of_several_versions: int
    joins: JoinsRow | None
    max_gap_s: float | None


_REWARD = f"""
    SELECT avg(reward_mean) FROM (
        SELECT reward_mean, ntile(10) OVER (ORDER BY batch_number, index) AS tenth
        FROM trajectory_group WHERE job_id = %s AND state = '{GroupState.BATCHED}'
    ) g GROUP BY tenth ORDER BY tenth
"""
_GROUPS = f"""
    SELECT count(*) FILTER (WHERE state = '{GroupState.BATCHED}'),
           count(*) FILTER (WHERE state = '{GroupState.DROPPED}')
    FROM trajectory_group WHERE job_id = %s
"""
_TURNS = """
    SELECT count(*), coalesce(sum(num_tokens), 0), coalesce(sum(num_wasted_tokens), 0),
           count(*) FILTER (WHERE num_handovers > 0), count(*) FILTER (WHERE num_continuations > 0),
           count(*) FILTER (WHERE min_version < max_version), max(max_gap_s)
    FROM trajectory_node WHERE job_id = %s AND kind = 2 AND NOT is_partial
"""
_EVALUATED = """
    SELECT coalesce(sum(s.num_sampled_tokens), 0) FROM trajectory_session s
    JOIN trajectory_group g ON g.id = s.group_id AND g.evaluation_version IS NOT NULL WHERE s.job_id = %s
"""
_SESSIONS = f"SELECT count(*) FROM trajectory_session WHERE job_id = %s AND state = '{SessionState.CLOSED}'"
_BATCHES = "SELECT coalesce(sum(num_trained_tokens), 0) FROM trajectory_batch WHERE job_id = %s"


def job_summary(job: Job, *, now: datetime) -> Summary:
    """Summarise a job with seven queries, none of which reads token bytes.

    If its trajectories were deleted, only the remaining rows count.
    """
    if job.kept_summary is not None:
        kept: Summary = job.kept_summary
        kept.setdefault("joins", None)  # older summaries lack it, or some of its keys
        if kept["joins"] is not None:
            kept["joins"].setdefault("num_conversations", None)
        return kept
    job_id = job.id
    rewards = [float(row[0]) for row in _rows(_REWARD, job_id) if row[0] is not None]
    ((trained, dropped),) = _rows(_GROUPS, job_id)
    ((turns, sampled, wasted, handed_over, continued, several, gap),) = _rows(_TURNS, job_id)
    ((sessions,),) = _rows(_SESSIONS, job_id)
    ((evaluated,),) = _rows(_EVALUATED, job_id)
    ((trained_tokens,),) = _rows(_BATCHES, job_id)
    return Summary(
        num_groups_trained=trained,
        num_groups_dropped=dropped,
        reward_first_tenth=rewards[0] if len(rewards) == 10 else None,
        reward_last_tenth=rewards[-1] if len(rewards) == 10 else None,
        reward_by_tenth=rewards,
        num_sessions=sessions,
        num_turns=turns,
        num_sampled_tokens=int(sampled),
        num_evaluation_tokens=int(evaluated),
        num_trained_tokens=int(trained_tokens),
        trained_tokens_per_s=_rate(int(trained_tokens), job, now),
        num_wasted_tokens=int(wasted),
        num_turns_handed_over=handed_over,
        num_turns_continued=continued,
        num_turns_of_several_versions=several,
        joins=job_joins(job),
        max_gap_s=gap,
    )


def _rate(num_tokens: int, job: Job, now: datetime) -> float | None:
    if job.started_at is None:
        return None
    running_s = ((job.ended_at or now) - job.started_at).total_seconds()
    return num_tokens / running_s if running_s > 0 else None


def _rows(statement: str, job_id: UUID) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [job_id])
        return list(cursor.fetchall())
