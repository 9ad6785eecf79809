"""Ready rollout groups → one numbered batch: advantages, flattened trees, packed arrays.

Advantages are group-relative over sessions, never over branches; every trained token of a session carries its
session's. The same groups always give the same batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import group_advantages
from seamlessflow.core.algorithms.tree_weights import TokenWeights, token_weights
from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.batching.tree_layout import NO_PARENT
from seamlessflow.core.job_spec import AdvantageNorm, TrainObjective
from seamlessflow.core.trajectory.flatten import FlatTrees, flatten, unroll
from seamlessflow.core.trajectory.prefix_tree import Node


@dataclass(frozen=True, slots=True)
class FinishedSession:
    """A session with its verdict."""

    reward: float
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the header of a batch says beyond the samples themselves, and how these are made."""

    job_id: str
    number: int
    policy_version: int
    temperature: float
    advantage_norm: AdvantageNorm
    objective: TrainObjective = TrainObjective.ONCE
    is_tree: bool = False  # the sessions of a group become trees; else every branch is written out


@dataclass(frozen=True, slots=True)
class _Part:
    """A group's share of the batch."""

    trees: FlatTrees
    weights: TokenWeights
    rewards: NDArray[np.float64]  # [S]


def assemble_batch(groups: Sequence[Sequence[FinishedSession]], plan: BatchPlan) -> Batch:
    """Pack groups, each a sequence of sessions, in the order given. Raises ValueError when nothing can be trained."""
    parts = [_part(group, plan) for group in groups]
    if not any(part.trees.layout.num_samples for part in parts):
        raise ValueError(f"batch {plan.number} of job {plan.job_id} would hold no trainable token")
    rewards = np.array([session.reward for group in groups for session in group], dtype=np.float64)
    header = BatchHeader(
        job_id=plan.job_id,
        number=plan.number,
        policy_version=plan.policy_version,
        temperature=plan.temperature,
        num_groups=len(groups),
        reward_mean=float(rewards.mean()),
        reward_std=float(rewards.std()),
    )
    bases = np.cumsum([0, *(part.trees.layout.num_tokens for part in parts)])
    starts = [part.trees.layout.sample_starts[:-1] + base for part, base in zip(parts, bases, strict=False)]
    parents = [_shifted(part.trees, base) for part, base in zip(parts, bases, strict=False)]
    return Batch(
        header=header,
        sample_starts=np.concatenate([*starts, bases[-1:]]).astype(np.int32),
        sample_parents=np.concatenate(parents).astype(np.int32),
        token_ids=np.concatenate([part.trees.token_ids for part in parts]),
        loss_mask=np.concatenate([part.trees.loss_mask for part in parts]),
        behaviour_logprobs=np.concatenate([part.trees.behaviour_logprobs for part in parts]),
        advantages_positive=np.concatenate([part.weights.positive for part in parts]).astype(np.float32),
        advantages_negative=np.concatenate([part.weights.negative for part in parts]).astype(np.float32),
        loss_weights=np.concatenate([part.weights.weights for part in parts]).astype(np.float32),
        versions=np.concatenate([part.trees.versions for part in parts]),
        rewards=np.concatenate([part.rewards for part in parts]).astype(np.float32),
    )


def _part(group: Sequence[FinishedSession], plan: BatchPlan) -> _Part:
    rewards = np.array([session.reward for session in group], dtype=np.float64)
    trees, objective = flatten([session.nodes for session in group]), plan.objective
    if not plan.is_tree:
        trees = unroll(trees, is_trained_once=objective is TrainObjective.ONCE)
        objective = TrainObjective.ONCE  # what a branch trains is in its own mask now
    advantages = group_advantages(rewards, plan.advantage_norm)[trees.sample_sessions]
    return _Part(
        trees=trees,
        weights=token_weights(trees.layout, trees.loss_mask, advantages, objective),
        rewards=rewards[trees.sample_sessions],
    )


def _shifted(trees: FlatTrees, base: Any) -> NDArray[np.int64]:
    parents = trees.layout.sample_parents
    return np.where(parents == NO_PARENT, NO_PARENT, parents + base)
