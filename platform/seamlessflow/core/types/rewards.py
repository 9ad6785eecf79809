"""What a reward may be: a number for which advantages in float32 stay finite."""

import math
from typing import Annotated

from pydantic import Field

MAX_REWARD = 1e6  # of either sign; thresholds on rewards in the job spec have the same bound
Reward = Annotated[float, Field(ge=-MAX_REWARD, le=MAX_REWARD)]


def reward_problem(reward: float) -> str | None:
    """Return why this reward cannot be an outcome; None if it can."""
    if math.isfinite(reward) and abs(reward) <= MAX_REWARD:
        return None
    return f"reward must be a number from -{MAX_REWARD:,.0f} to {MAX_REWARD:,.0f}, got {reward:g}"
