"""Subtracts the KL divergence from the reference model from a batch's rewards, for `kl_placement: reward`."""

import dataclasses

import numpy as np

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.kl_shaping import kl_estimates, kl_shaped_advantages
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.format import Batch


def kl_into_rewards(batch: Batch, reference_logprobs: Floats, algorithm: AlgorithmSection) -> Batch:
    """Return the batch with advantages computed from the shaped rewards.

    `reference_logprobs` is [T]; only trained tokens are used.
    """
    trained = np.flatnonzero(batch.loss_mask)
    token_sessions = np.repeat(batch.sessions, np.diff(batch.sample_starts))[trained]
    difference = reference_logprobs[trained] - batch.behaviour_logprobs[trained].astype(np.float64)
    advantages = kl_shaped_advantages(
        kl=kl_estimates(difference, algorithm.kl_estimator),
        sessions=token_sessions,
        rewards=batch.session_rewards,
        groups=batch.session_groups,
        algorithm=algorithm,
    )
    weighted = np.zeros(len(batch.token_ids), dtype=np.float64)
    weighted[trained] = advantages * batch.loss_weights[trained]
    return dataclasses.replace(
        batch,
        advantages_positive=np.maximum(weighted, 0.0).astype(np.float32),
        advantages_negative=np.minimum(weighted, 0.0).astype(np.float32),
    )
