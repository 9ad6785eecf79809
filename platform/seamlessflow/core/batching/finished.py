"""Finished sessions, of which batches are made: marks those that are too old to train, and computes their metrics.

The age of a session is that of its oldest sampled token. Beyond the staleness bound, a session loses its tokens but
keeps its outcome, which the others are compared with, so one very long answer does not cost the group its other
sessions. Metrics have the names of the metric catalogue (docs/metrics.md).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seamlessflow.core.algorithms.advantage import is_flat
from seamlessflow.core.training.section import TrainedTrees
from seamlessflow.core.trajectory.main_tree import main_tree
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, Node, NodeKind
from seamlessflow.core.trajectory.version_spans import UNKNOWN_VERSION


@dataclass(frozen=True, slots=True)
class FinishedSession:
    """A session with its outcome. `reward` is the outcome before any shaping."""

    reward: float
    nodes: Sequence[Node]
    domain: str = ""  # of its task, "" if it names none
    num_turns: int = 0
    num_sampled_tokens: int = 0
    is_truncated: bool = False  # an answer was cut by the limit on its tokens
    is_timeout: bool = False
    is_stale: bool = False  # beyond the staleness bound: not trained, but its outcome is still compared

    @property
    def longest_answer_tokens(self) -> int:
        """Return the number of sampled tokens in its longest answer."""
        answers = (node for node in self.nodes if node.kind is NodeKind.SAMPLED and not node.is_partial)
        return max((len(node.token_ids) // TOKEN_BYTES for node in answers), default=0)


def with_trees(sessions: Sequence[FinishedSession], trees: TrainedTrees) -> list[FinishedSession]:
    """Return the sessions with the trees that are trained. Their outcomes and lengths stay those of all trees."""
    if trees is TrainedTrees.ALL:
        return list(sessions)
    return [dataclasses.replace(session, nodes=main_tree(session.nodes)) for session in sessions]


def marked_stale(sessions: Sequence[FinishedSession], *, oldest_allowed: int) -> list[FinishedSession]:
    """Return the sessions; those with a token sampled by an older version than allowed are marked as stale."""
    return [
        dataclasses.replace(session, is_stale=True) if _is_stale(session, oldest_allowed) else session
        for session in sessions
    ]


def _is_stale(session: FinishedSession, oldest_allowed: int) -> bool:
    versions = (version for node in session.nodes if not node.is_partial for version in node.spans[1::2])
    return any(UNKNOWN_VERSION < version < oldest_allowed for version in versions)


def rollout_metrics(groups: Sequence[Sequence[FinishedSession]], *, overlong_limit: int) -> dict[str, float]:
    """Return the metrics of a batch's groups by name. Needs at least one group with at least one session.

    Rewards are the outcomes, before any shaping. Each domain gets a mean of its own if the tasks name several domains.
    """
    sessions = [session for group in groups for session in group]
    rewards = np.array([session.reward for session in sessions])
    lengths = np.array([session.num_sampled_tokens for session in sessions])
    is_whole = np.array([not session.is_truncated for session in sessions])
    is_without_contrast = [is_flat(np.array([session.reward for session in group])) for group in groups]
    metrics = {
        "reward/min": float(rewards.min()),
        "reward/max": float(rewards.max()),
        "rollout/length_mean": float(lengths.mean()),
        "rollout/length_min": float(lengths.min()),
        "rollout/length_max": float(lengths.max()),
        "rollout/num_sampled_tokens": float(lengths.sum()),
        "rollout/prompt_length_mean": float(np.mean([_num_given_tokens(session) for session in sessions])),
        "rollout/turns_mean": float(np.mean([session.num_turns for session in sessions])),
        "rollout/truncated_fraction": float(np.mean([session.is_truncated for session in sessions])),
        "rollout/timeout_fraction": float(np.mean([session.is_timeout for session in sessions])),
        "rollout/overlong_fraction": float((lengths > overlong_limit).mean()),
        "rollout/zero_variance_fraction": float(np.mean(is_without_contrast)),
        "rollout/mixed_version_fraction": float(np.mean([_has_several_versions(one) for one in sessions])),
    }
    if is_whole.any():
        metrics["rollout/terminated_length_mean"] = float(lengths[is_whole].mean())
    domains = sorted({session.domain for session in sessions})
    if len(domains) > 1:
        for domain in domains:
            own = [session.reward for session in sessions if session.domain == domain]
            metrics[f"reward/{domain or 'other'}/mean"] = float(np.mean(own))
    return metrics


def _num_given_tokens(session: FinishedSession) -> int:
    """Count the tokens that were not sampled: prompts, tool results and template text."""
    given = (len(node.token_ids) for node in session.nodes if node.kind is not NodeKind.SAMPLED)
    return sum(given) // TOKEN_BYTES


def _has_several_versions(session: FinishedSession) -> bool:
    """Return whether weights were updated during the session, which makes it a partial rollout."""
    return len({version for node in session.nodes for version in node.spans[1::2]}) > 1
