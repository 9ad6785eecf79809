"""Metrics of the sessions in a batch, under the names of the metric catalogue (docs/metrics.md).

Rewards here are the outcomes, before any shaping. Each domain has its own mean if the tasks name more than one.
"""

from collections.abc import Sequence

import numpy as np

from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, NodeKind


def rollout_metrics(groups: Sequence[Sequence[FinishedSession]], *, overlong_limit: int) -> dict[str, float]:
    """Return the metrics by name. Needs at least one group with at least one session."""
    sessions = [session for group in groups for session in group]
    rewards = np.array([session.reward for session in sessions])
    lengths = np.array([session.num_sampled_tokens for session in sessions])
    is_whole = np.array([not session.is_truncated for session in sessions])
    is_flat = [len({session.reward for session in group}) <= 1 for group in groups]
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
        "rollout/zero_variance_fraction": float(np.mean(is_flat)),
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
    """Count the tokens that were not sampled: prompts, tool results, text of templates."""
    given = (len(node.token_ids) for node in session.nodes if node.kind is not NodeKind.SAMPLED)
    return sum(given) // TOKEN_BYTES


def _has_several_versions(session: FinishedSession) -> bool:
    """Whether weights were updated during the session, which makes it a partial rollout."""
    return len({version for node in session.nodes for version in node.spans[1::2]}) > 1
