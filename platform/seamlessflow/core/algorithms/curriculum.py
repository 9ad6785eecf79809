"""Which tasks an epoch contains: stages, and SRPO's history resampling. Pure; the caller keeps the state.

Source: SRPO (arXiv 2504.14286). At the end of an epoch, tasks whose sessions were all correct leave; mixed and
all-wrong tasks stay, because the latter may become learnable. Stages restrict the tasks to some domains; a later stage
starts again with all of its tasks. The paper leaves two points open, decided here: the history of a task is its newest
finalized group (groups still running do not delay the epoch), and a pool that would be empty starts again in full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.section import StageSection


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """Task indices in the order they run, and the reason for their number."""

    order: NDArray[np.int32]
    num_dropped: int
    reason: str


def stage_tasks(domains: Sequence[str], stage: StageSection | None) -> NDArray[np.int32]:
    """Return the indices of the tasks of a stage; `domains` has one entry per task ("" for none)."""
    if stage is None or not stage.domains:
        return np.arange(len(domains), dtype=np.int32)
    wanted = frozenset(stage.domains)
    return np.array([i for i, domain in enumerate(domains) if domain in wanted], dtype=np.int32)


def epoch_plan(
    pool: NDArray[np.int32],
    *,
    lowest_rewards: Mapping[int, float],
    correct_reward: float,
    seed: Sequence[int],
) -> EpochPlan:
    """Plan the next epoch over `pool`, the tasks of the stage in the order of their index.

    `lowest_rewards`: the lowest reward in each task's newest finalized group since the stage began; if it is correct,
    all sessions were. Leave it empty for an epoch over all tasks.
    """
    is_solved = np.array(
        [lowest_rewards.get(int(task), -np.inf) >= correct_reward for task in pool], dtype=np.bool_
    )
    kept = pool[~is_solved]
    reason = f"{len(kept)} of {len(pool)} tasks; {int(is_solved.sum())} were all correct"
    if len(kept) == 0:
        kept, reason = pool, f"all {len(pool)} tasks were all correct: the epoch starts again in full"
    order = np.random.default_rng(list(seed)).permutation(kept).astype(np.int32)
    return EpochPlan(order=order, num_dropped=len(pool) - len(kept), reason=reason)


def stage_is_over(stage: StageSection, *, num_updates: int, recent: Sequence[float]) -> str | None:
    """Return why the stage ends by its rule, or None while it continues.

    `recent`: the newest values of its metric within the stage, at most `window`.
    """
    if stage.until_update is not None and num_updates >= stage.until_update:
        return f"{num_updates} updates are published, {stage.until_update} were asked for"
    if stage.until_metric is None or stage.at_least is None or len(recent) < stage.window:
        return None
    mean = float(np.mean(recent))
    if mean < stage.at_least:
        return None
    return f"{stage.until_metric} is {mean:.4g} over {stage.window} updates, {stage.at_least:g} was asked for"
