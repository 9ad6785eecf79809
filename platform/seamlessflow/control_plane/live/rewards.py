"""Reads what each published update learned from: rewards with percentiles, length of episodes, time of publication."""

from typing import cast
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.live.rows import epoch_ms
from seamlessflow.core.protocol.live_rows import RewardRow
from seamlessflow.runtime.sql import statements

# Most groups lie between: a figure that no group had, as a mean less a deviation can be, is left out.
LOW, HIGH = 0.1, 0.9
MAX_UPDATES = 2000  # of one job; older ones a drawing could not show apart

SQL = statements(__name__)


def rewards_after(job_ids: list[UUID], batch_number: int) -> dict[UUID, list[RewardRow]]:
    """Return for each published batch after `batch_number`: the mean of the groups' mean rewards with the 10th and 90th
    percentile, the mean sampled tokens and turns of an episode, and the time of publication.
    """
    rewards: dict[UUID, list[RewardRow]] = {}
    values = {"percentiles": [LOW, HIGH], "jobs": job_ids, "after": batch_number, "most": MAX_UPDATES}
    for row in named_rows(SQL["rewards"], values):
        low, high = cast("tuple[float, float]", row.percentiles or (None, None))  # a trained group has a mean
        reward: RewardRow = {
            "batch": row.batch_number,
            "mean": row.mean,
            "low": low,
            "high": high,
            "num_groups": row.num_groups,
            "tokens": _rounded(row.tokens),
            "turns": _rounded(row.turns),
            "at": epoch_ms(row.published_at),
        }
        rewards.setdefault(row.job_id, []).append(reward)
    return rewards


def _rounded(value: object) -> float | None:
    return None if value is None else round(float(str(value)), 2)
