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


def number_read(value: object) -> float:
    """Return a number of any library's kind as a float; a truth value counts as 1 or 0. Raises ValueError."""
    refusal = f"must be a number, got {value!r}"
    if not hasattr(type(value), "__float__"):
        raise ValueError(refusal)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # of arrays with several numbers
        raise ValueError(refusal) from error


def reward_read(value: object) -> float:
    """Return what a reward function or an environment gave as a reward. Raises ValueError if it cannot be one."""
    try:
        reward = number_read(value)
    except ValueError as error:
        raise ValueError(f"reward {error}") from error
    if problem := reward_problem(reward):
        raise ValueError(problem)
    return reward
