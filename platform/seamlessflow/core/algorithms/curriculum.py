"""Which tasks an epoch walks through: stages, and SRPO's history resampling. Pure; the caller keeps the state.

Source: SRPO (arXiv 2504.14286): at an epoch's end tasks whose sessions were all correct leave; mixed ones and those
that were all wrong stay, because the latter may become learnable. Stages restrict the tasks to some domains; a later
stage starts again from all of its tasks. What the paper leaves open is decided here: a task's newest finalized group is
its history (groups still running do not delay the epoch), and a pool that would be empty starts again in full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.section import StageSection


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """Task indices in the order they run, and why there are so many."""

    order: NDArray[np.int32]
    num_dropped: int
    reason: str


def stage_tasks(domains: Sequence[str], stage: StageSection | None) -> NDArray[np.int32]:
    """Indices of the tasks of a stage; `domains` has one entry a task ("" for none)."""
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
    """The next epoch over `pool`, the tasks of the stage in the order of their index.

    `lowest_rewards`: of each task's newest finalized group since the stage began; its sessions were all correct if even
    the lowest is. Leave it empty for an epoch over everything.
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
    """Why the stage ends by its rule, None while it goes on.

    `recent`: newest values of its metric within the stage, at most `window`.
    """
    if stage.until_update is not None and num_updates >= stage.until_update:
        return f"{num_updates} updates are published, {stage.until_update} were asked for"
    if stage.until_metric is None or stage.at_least is None or len(recent) < stage.window:
        return None
    mean = float(np.mean(recent))
    if mean < stage.at_least:
        return None
    return f"{stage.until_metric} is {mean:.4g} over {stage.window} updates, {stage.at_least:g} was asked for"
