"""Turns ready rollout groups into one numbered batch: advantages, flattened trees, packed arrays.

`core.batching.group_weights` computes the weights of tokens. The same groups always give the same batch.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.estimators import Estimator
from seamlessflow.core.algorithms.mode_aware import JudgeMarkers
from seamlessflow.core.algorithms.options import AdvantageEstimator, StalenessScope
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.finished import FinishedSession, rollout_metrics
from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.batching.group_weights import (
    GroupSamples,
    group_samples,
    judged_session,
    token_weights_of,
)
from seamlessflow.core.guidance.record import GuideRecord
from seamlessflow.core.training.section import TrainObjective
from seamlessflow.core.trajectory.flatten import FlatTrees, flatten, unroll
from seamlessflow.core.trajectory.tree_layout import NO_PARENT


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How the samples of a batch are made, and what its header says beside them."""

    job_id: str
    number: int
    policy_version: int
    temperature: float
    algorithm: AlgorithmSection
    overlong_tokens: int = 2**31  # limit on the sampled tokens of a session
    overlong_turn_tokens: int | None = None  # limit on a single answer; None: single answers are not checked
    judge_markers: JudgeMarkers | None = None  # needed by mode-aware advantages
    installed_estimator: Estimator | None = None  # needed if the algorithm names one that is not built in
    metrics: Mapping[str, float] = field(default_factory=dict)  # about how the groups were produced
    objective: TrainObjective = TrainObjective.ONCE
    is_tree: bool = False  # true: the sessions of a group become trees; false: every branch is written out


def assemble_batch(groups: Sequence[Sequence[FinishedSession]], plan: BatchPlan) -> Batch:
    """Make a batch of groups, each a sequence of sessions, in the given order.

    If nothing can be trained, the batch still gets its number but its tokens no advantage, so the job does not stall.
    """
    samples = [_samples(group, plan) for group in groups]
    if not any(group.trees.loss_mask.any() for group in samples):
        # All sessions were filtered out, so keep their tokens and take only their advantages away.
        samples = [_samples(group, plan, may_mask=False) for group in groups]
    weights = token_weights_of(samples, plan.algorithm, plan.installed_estimator)
    bases = np.cumsum([0, *(group.trees.layout.num_tokens for group in samples)])
    firsts = np.cumsum(
        [0, *(len(group.rewards) for group in samples)]
    )  # the number of each group's first session
    starts = [
        group.trees.layout.sample_starts[:-1] + base for group, base in zip(samples, bases, strict=False)
    ]
    parents = [_shifted(group.trees, base) for group, base in zip(samples, bases, strict=False)]
    sessions = [group.trees.sample_sessions + first for group, first in zip(samples, firsts, strict=False)]
    sizes = [group.trees.layout.num_samples for group in samples]
    guides = {guide: number for number, guide in enumerate(dict.fromkeys(_guides(samples)))}
    return Batch(
        header=_header(groups, plan, list(guides)),
        sample_starts=np.concatenate([*starts, bases[-1:]]).astype(np.int32),
        sample_parents=np.concatenate(parents).astype(np.int32),
        token_ids=np.concatenate([group.trees.token_ids for group in samples]),
        loss_mask=np.concatenate([group.trees.loss_mask for group in samples]),
        behaviour_logprobs=np.concatenate([group.trees.behaviour_logprobs for group in samples]),
        advantages_positive=np.concatenate([weight.positive for weight in weights]).astype(np.float32),
        advantages_negative=np.concatenate([weight.negative for weight in weights]).astype(np.float32),
        loss_weights=np.concatenate([weight.weights for weight in weights]).astype(np.float32),
        versions=np.concatenate([group.trees.versions for group in samples]),
        rewards=np.concatenate([group.sample_rewards for group in samples]).astype(np.float32),
        sessions=np.concatenate(sessions).astype(np.int32),
        groups=np.repeat(np.arange(len(samples)), sizes).astype(np.int32),
        session_rewards=np.concatenate([group.rewards for group in samples]),
        session_groups=np.repeat(np.arange(len(samples)), [len(group.rewards) for group in samples]).astype(
            np.int32
        ),
        guided_starts=_joined([group.trees.guided_starts for group in samples], bases),
        guided_ends=_joined([group.trees.guided_ends for group in samples], bases),
        guided_guides=np.array([guides[guide] for guide in _guides(samples)], dtype=np.int32),
    )


def _guides(samples: Sequence[GroupSamples]) -> Iterator[GuideRecord]:
    return (guide for group in samples for guide in group.trees.guides)


def _joined(tokens: Sequence[NDArray[np.int64]], bases: NDArray[np.int64]) -> NDArray[np.int32]:
    """Join numbers of tokens within each group to numbers within the batch."""
    joined: NDArray[np.int64] = np.concatenate([own + base for own, base in zip(tokens, bases, strict=False)])
    return joined.astype(np.int32)


def _header(
    groups: Sequence[Sequence[FinishedSession]], plan: BatchPlan, guides: list[GuideRecord]
) -> BatchHeader:
    rewards = np.array([session.reward for group in groups for session in group], dtype=np.float64)
    return BatchHeader(
        job_id=plan.job_id,
        number=plan.number,
        policy_version=plan.policy_version,
        temperature=plan.temperature,
        num_groups=len(groups),
        reward_mean=float(rewards.mean()),
        reward_std=float(rewards.std()),
        metrics={**rollout_metrics(groups, overlong_limit=plan.overlong_tokens), **plan.metrics},
        guides=guides,
    )


def _samples(group: Sequence[FinishedSession], plan: BatchPlan, *, may_mask: bool = True) -> GroupSamples:
    judged = None
    if plan.judge_markers is not None and plan.algorithm.advantage is AdvantageEstimator.MODE_AWARE:
        judged = [judged_session(session, plan.judge_markers) for session in group]
    marks = None if judged is None else [one.marks for one in judged]
    trees = flatten([() if session.is_stale else session.nodes for session in group], marks)
    objective = plan.objective
    if not plan.is_tree:
        trees = unroll(trees, is_trained_once=objective is TrainObjective.ONCE)
        objective = TrainObjective.ONCE  # each branch's own mask now selects its trained tokens
    if plan.algorithm.off_policy.staleness_scope is StalenessScope.TOKEN:
        bound = plan.algorithm.staleness_bound
        is_fresh = bound.admitted_tokens(trees.versions, step_version=plan.policy_version)
        trees = dataclasses.replace(trees, loss_mask=np.where(is_fresh, trees.loss_mask, np.uint8(0)))
    samples = group_samples(
        group,
        trees,
        objective,
        plan.algorithm,
        limit=plan.overlong_tokens,
        turn_limit=plan.overlong_turn_tokens,
        may_mask=may_mask,
    )
    if judged is None:
        return samples
    return dataclasses.replace(samples, is_on=np.array([one.is_on for one in judged], dtype=np.bool_))


def _shifted(trees: FlatTrees, base: Any) -> NDArray[np.int64]:
    parents = trees.layout.sample_parents
    return np.where(parents == NO_PARENT, NO_PARENT, parents + base)
