"""Reads what each published update learned from: rewards with percentiles, length of episodes, time of publication."""

from typing import cast
from uuid import UUID

from django.db import connection

from seamlessflow.control_plane.live.rows import epoch_ms
from seamlessflow.core.protocol.live_rows import RewardRow

# Most groups lie between: a figure that no group had, as a mean less a deviation can be, is left out.
LOW, HIGH = 0.1, 0.9
MAX_UPDATES = 2000  # of one job; older ones a drawing could not show apart

_REWARDS = """
    SELECT g.job_id, g.batch_number, avg(g.reward_mean),
           percentile_cont(ARRAY[%s, %s]) WITHIN GROUP (ORDER BY g.reward_mean), count(*),
           avg(s.tokens), avg(s.turns), max(v.published_at)
    FROM trajectory_group g
    JOIN jobs_job j ON j.id = g.job_id
    LEFT JOIN policies_policyversion v ON v.job_id = g.job_id AND v.batch_number = g.batch_number
    LEFT JOIN LATERAL (
        SELECT avg(num_sampled_tokens) AS tokens, avg(num_turns) AS turns
        FROM trajectory_session WHERE group_id = g.id AND reward IS NOT NULL
    ) s ON TRUE
    WHERE g.job_id = ANY(%s) AND g.batch_number > greatest(%s, j.published_batch - %s)
      AND g.batch_number <= j.published_batch
    GROUP BY g.job_id, g.batch_number ORDER BY g.batch_number
"""


def rewards_after(job_ids: list[UUID], batch_number: int) -> dict[UUID, list[RewardRow]]:
    """Return for each published batch after `batch_number`: the mean of the groups' mean rewards with the 10th and 90th
    percentile, the mean sampled tokens and turns of an episode, and the time of publication.
    """
    rewards: dict[UUID, list[RewardRow]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_REWARDS, [LOW, HIGH, job_ids, batch_number, MAX_UPDATES])
        for job_id, number, mean, percentiles, num_groups, tokens, turns, at in cursor.fetchall():
            low, high = cast("tuple[float, float]", percentiles or (None, None))  # a trained group has a mean
            row: RewardRow = {
                "batch": number,
                "mean": mean,
                "low": low,
                "high": high,
                "num_groups": num_groups,
                "tokens": _rounded(tokens),
                "turns": _rounded(turns),
                "at": epoch_ms(at),
            }
            rewards.setdefault(job_id, []).append(row)
    return rewards


def _rounded(value: object) -> float | None:
    return None if value is None else round(float(str(value)), 2)
