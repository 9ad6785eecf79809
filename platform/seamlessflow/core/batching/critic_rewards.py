"""Gives a batch the advantages of a critic, for `advantage: gae`, which only the trainer can compute."""

import dataclasses

import numpy as np

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.gae import branches_of, critic_targets
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.training.section import TrainObjective


def critic_into_advantages(
    batch: Batch,
    *,
    values: Floats,
    kl: Floats | None,
    algorithm: AlgorithmSection,
    objective: TrainObjective,
) -> tuple[Batch, Floats]:
    """Return the batch with advantages by GAE, and the targets of the critic, [T].

    `values` is [T], NaN where a token is not trained; `kl` [T] is the KL to the reference if the reward includes it.
    """
    is_trained = ~np.isnan(values)
    targets = critic_targets(
        branches_of(batch.layout, is_trained, objective),
        values=np.where(is_trained, values, 0.0),
        token_rewards=np.zeros(len(values)) if kl is None else -algorithm.kl_coef * kl,
        branch_rewards=batch.session_rewards[batch.sessions],
        weights=batch.loss_weights.astype(np.float64),
        gamma=algorithm.critic.gamma,
        gae_lambda=algorithm.critic.gae_lambda,
    )
    shaped = dataclasses.replace(
        batch,
        advantages_positive=targets.positive.astype(np.float32),
        advantages_negative=targets.negative.astype(np.float32),
    )
    return shaped, targets.returns
