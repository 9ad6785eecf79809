"""Computes the weights of tokens in finished groups: applies the overlong rule, then advantages, then makes arrays.

Baselines are computed over sessions, never over branches. Every trained token has the advantage of its session (or of
its span within the session). A sampled token belongs to one session, so the branches through it agree on its advantage.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.estimators import Estimator, built_in_estimator, session_advantages
from seamlessflow.core.algorithms.mode_aware import JudgeMarkers, judge_span, mode_advantages
from seamlessflow.core.algorithms.options import AdvantageEstimator, OverlongRule
from seamlessflow.core.algorithms.overlong import is_overlong, soft_penalties
from seamlessflow.core.algorithms.section import AlgorithmSection, JudgeSection, OverlongSection
from seamlessflow.core.algorithms.tree_weights import TokenWeights, token_weights
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.training.section import TrainObjective
from seamlessflow.core.trajectory.flatten import FlatTrees, NodeMarks
from seamlessflow.core.trajectory.prefix_tree import NodeKind


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """A group's samples in a batch: T tokens of S samples of M sessions."""

    trees: FlatTrees
    objective: TrainObjective
    rewards: Floats  # [M] after the overlong rule
    has_advantage: NDArray[np.bool_]  # [M]
    is_on: NDArray[np.bool_] | None = None  # [M] chose to think; needed for mode-aware advantages

    @property
    def token_sessions(self) -> NDArray[np.int64]:
        """Return the session of each token, [T]."""
        return self.trees.sample_sessions[self.trees.layout.samples]

    @property
    def sample_rewards(self) -> Floats:
        """Return the reward of each sample, [S]."""
        return self.rewards[self.trees.sample_sessions]

    @property
    def num_trained_tokens(self) -> NDArray[np.int64]:
        """Return each session's number of trained tokens, [M], each counted as often as it counts in the loss.

        So a tree weighs as much as its branches written out.
        """
        trees, trained = self.trees, self.trees.loss_mask != 0
        no_advantages = np.zeros(trees.layout.num_samples)
        weights = token_weights(trees.layout, trees.loss_mask, no_advantages, self.objective).weights
        sessions = self.token_sessions[trained]
        return np.bincount(sessions, weights=weights[trained], minlength=len(self.rewards)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class JudgedSession:
    is_on: bool
    marks: NodeMarks  # the tokens of its judge span


def judged_session(session: FinishedSession, markers: JudgeMarkers) -> JudgedSession:
    """Return whether a session chose to think, and its judge span, from all its sampled tokens, trained or not."""
    answers = {
        node.index: np.frombuffer(node.token_ids, dtype="<i4")
        for node in session.nodes
        if node.kind is NodeKind.SAMPLED and not node.is_partial
    }
    sampled = np.concatenate([np.empty(0, dtype=np.int32), *answers.values()])
    span = judge_span(sampled, markers)
    ends = np.cumsum([len(ids) for ids in answers.values()], dtype=np.int64)
    marks = {
        index: min(len(ids), span.num_tokens - int(end) + len(ids))
        for (index, ids), end in zip(answers.items(), ends, strict=True)
        if end - len(ids) < span.num_tokens
    }
    return JudgedSession(is_on=span.is_on, marks=marks)


def group_samples(
    group: Sequence[FinishedSession],
    trees: FlatTrees,
    objective: TrainObjective,
    algorithm: AlgorithmSection,
    *,
    limit: int,
    turn_limit: int | None = None,
    may_mask: bool = True,
) -> GroupSamples:
    """Apply the overlong rule to a group: to its rewards, its mask, or its advantages.

    `limit` bounds the sampled tokens of a session, `turn_limit` those of one answer. Sessions that the rule filters, or
    whose reward is too low to imitate, are masked; without `may_mask` they only lose their advantage.
    """
    overlong = algorithm.overlong
    rewards = np.array([session.reward for session in group], dtype=np.float64)
    num_tokens = np.array([session.num_sampled_tokens for session in group], dtype=np.int64)
    is_truncated = np.array([session.is_truncated for session in group], dtype=np.bool_)
    is_over = is_overlong(num_tokens, is_truncated, limit=limit)
    is_left_out = np.zeros(len(group), dtype=np.bool_)
    if algorithm.advantage is AdvantageEstimator.ONE:
        is_left_out |= rewards < algorithm.sft_min_reward
    has_advantage = ~is_left_out
    match overlong.rule:
        case OverlongRule.NONE:
            pass
        case OverlongRule.SHAPE:
            rewards = rewards + _soft_penalties(group, overlong, limit=limit, turn_limit=turn_limit)
        case OverlongRule.FILTER:
            is_left_out, has_advantage = is_left_out | is_over, has_advantage & ~is_over
        case OverlongRule.ZERO_ADVANTAGE:
            has_advantage &= ~is_over
    if may_mask:
        is_masked = is_left_out[trees.sample_sessions][trees.layout.samples]
        trees = dataclasses.replace(trees, loss_mask=np.where(is_masked, np.uint8(0), trees.loss_mask))
    return GroupSamples(trees=trees, objective=objective, rewards=rewards, has_advantage=has_advantage)


def _soft_penalties(
    group: Sequence[FinishedSession], overlong: OverlongSection, *, limit: int, turn_limit: int | None
) -> Floats:
    """Return the penalty of each session or of its longest answer, [M], whichever is worse."""
    lengths = [(limit, [session.num_sampled_tokens for session in group])]
    if turn_limit is not None:
        lengths.append((turn_limit, [session.longest_answer_tokens for session in group]))
    penalties = [
        soft_penalties(
            np.array(num_tokens, dtype=np.int64),
            limit=at_most,
            buffer=overlong.buffer_fraction * at_most,
            penalty=overlong.penalty,
        )
        for at_most, num_tokens in lengths
    ]
    worst: Floats = np.min(penalties, axis=0)
    return worst


def token_weights_of(
    groups: Sequence[GroupSamples], algorithm: AlgorithmSection, installed: Estimator | None = None
) -> list[TokenWeights]:
    """Return the weights of each group. `installed` is the estimator that the algorithm names if it is not built in."""
    if algorithm.advantage is AdvantageEstimator.MODE_AWARE:
        return [_mode_aware_weights(group, algorithm.judge) for group in groups]
    sizes = [len(group.rewards) for group in groups]
    advantages = session_advantages(
        np.concatenate([group.rewards for group in groups]),
        np.repeat(np.arange(len(groups)), sizes).astype(np.int32),
        installed or _built_in(algorithm),
        num_tokens=np.concatenate([group.num_trained_tokens for group in groups]),
    )
    bounds = np.cumsum([0, *sizes])
    return [
        _session_weights(group, advantages[first:end] * group.has_advantage)
        for group, first, end in zip(groups, bounds[:-1], bounds[1:], strict=True)
    ]


def _built_in(algorithm: AlgorithmSection) -> Estimator:
    return built_in_estimator(
        AdvantageEstimator(algorithm.advantage),
        norm=algorithm.advantage_norm,
        sft_min_reward=algorithm.sft_min_reward,
    )


def _session_weights(group: GroupSamples, advantages: Floats) -> TokenWeights:
    trees = group.trees
    return token_weights(trees.layout, trees.loss_mask, advantages[trees.sample_sessions], group.objective)


def _mode_aware_weights(group: GroupSamples, judge: JudgeSection) -> TokenWeights:
    assert group.is_on is not None
    own = mode_advantages(group.rewards, group.is_on, gamma=judge.gamma, bias=judge.bias, norm=judge.norm)
    sessions, is_judge = group.token_sessions, group.trees.is_marked
    advantages = np.where(is_judge, own.judge[sessions], own.answer[sessions]) * group.has_advantage[sessions]
    weights = _session_weights(group, np.zeros(len(group.rewards))).weights
    return TokenWeights(
        positive=np.maximum(advantages, 0.0) * weights,
        negative=np.minimum(advantages, 0.0) * weights,
        weights=weights,
    )
