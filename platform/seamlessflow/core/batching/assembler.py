"""Ready rollout groups → one numbered batch: advantages, linearised samples, packed arrays.

Advantages are group-relative over sessions, never over branches; every trained token of a session carries its
session's. The same groups always give the same batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seamlessflow.core.algorithms.advantage import group_advantages
from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.job_spec import AdvantageNorm
from seamlessflow.core.trajectory.linearize import Sample, linearize
from seamlessflow.core.trajectory.prefix_tree import Node


@dataclass(frozen=True, slots=True)
class FinishedSession:
    """A session with its verdict."""

    reward: float
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the header of a batch says beyond the samples themselves."""

    job_id: str
    number: int
    policy_version: int
    temperature: float
    advantage_norm: AdvantageNorm


@dataclass(frozen=True, slots=True)
class _Scored:
    sample: Sample
    advantage: float
    reward: float


def assemble_batch(groups: Sequence[Sequence[FinishedSession]], plan: BatchPlan) -> Batch:
    """Pack groups, each a sequence of sessions, in the order given. Raises ValueError when nothing can be trained."""
    scored = [entry for group in groups for entry in _score(group, plan.advantage_norm)]
    if not scored:
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
    lengths = [len(entry.sample.token_ids) for entry in scored]
    mask = np.concatenate([entry.sample.loss_mask for entry in scored])
    logprobs = np.concatenate([entry.sample.behaviour_logprobs for entry in scored])
    advantages = np.repeat(np.array([e.advantage for e in scored], dtype=np.float32), lengths)
    return Batch(
        header=header,
        sample_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        token_ids=np.concatenate([entry.sample.token_ids for entry in scored]),
        loss_mask=mask,
        behaviour_logprobs=logprobs,
        advantages=np.where(mask != 0, advantages, np.float32(0.0)),
        versions=np.concatenate([entry.sample.versions for entry in scored]),
        rewards=np.array([entry.reward for entry in scored], dtype=np.float32),
    )


def _score(group: Sequence[FinishedSession], norm: AdvantageNorm) -> list[_Scored]:
    rewards = np.array([session.reward for session in group], dtype=np.float64)
    return [
        _Scored(sample, float(advantage), session.reward)
        for session, advantage in zip(group, group_advantages(rewards, norm), strict=True)
        for sample in linearize(session.nodes)
    ]
