"""Run as a script: PPO's critic in float32 against float64, in every ZeRO stage, on trees, after a restart.

Prints one JSON line per case. Several ranks may run the cases named `stage` together.
"""

import dataclasses
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.critic import Critic
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec
from tests.integration.workers.train.step.trainer_deepspeed_check import BETA1, TEMPERATURE, exact_logprobs
from tests.integration.workers.train.trees.trainer_trees_check import batch_of
from tests.oracles.reference_critic import reference_gae, reference_value_loss
from tests.oracles.reference_loss import ReferenceSequence, reference_loss

GAMMA, GAE_LAMBDA, KL_COEF, VALUE_CLIP = 0.97, 0.9, 0.1, 0.05
CRITIC = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "learning_rate": 3e-3, "value_clip": VALUE_CLIP}
STAGES = {1: (0, 1, 3), 2: (2, 3)}  # of ZeRO, by the number of ranks
OBJECTIVES = ("once", "by_leaves")


def spec_of(*, critic: dict[str, Any] | None = None, kl_coef: float = KL_COEF, **train: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            **make_spec(max_grad_norm=1000.0, adam_betas=(BETA1, 0.95), warmup_updates=0, **train),
            "algorithm": {"name": "ppo", "kl_coef": kl_coef, "critic": {**CRITIC, **(critic or {})}},
        }
    )


def critic_of(engine: TrainEngine) -> Critic:
    assert engine._critic is not None
    return engine._critic


def head_of(model: Any) -> nn.Linear:
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Linear)
    return head


def head_fill(head: nn.Linear) -> None:
    """Give the head values that say something, the same everywhere."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * 0.2)
        head.bias.fill_(0.3)


def critic_fill(engine: TrainEngine) -> None:
    head_fill(head_of(critic_of(engine)._engine.module.body.model))


def batch_for(number: int) -> Batch:
    batch = make_batch(number, temperature=TEMPERATURE)
    groups = (np.arange(10) // 2).astype(np.int32)
    return dataclasses.replace(batch, groups=groups, session_groups=groups)


def exact_values(model: nn.Module, batch: Batch) -> Tensor:
    """[T]: the value before each token, sample by sample; the first token of a sample has none."""
    parts = []
    for start, end in itertools.pairwise(batch.sample_starts):
        ids = torch.from_numpy(batch.token_ids[start:end].astype(np.int64))[None]
        parts += [torch.zeros(1, dtype=torch.float64), model(input_ids=ids).logits[0, :-1, 0]]
    return torch.cat(parts)


def exact_targets(
    batch: Batch, values: NDArray[np.float64], kl: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return whitened advantages and targets of the trained tokens, [T], branch by branch."""
    advantages, is_trained = np.zeros(len(values)), batch.loss_mask != 0
    for index, (start, end) in enumerate(itertools.pairwise(batch.sample_starts)):
        own = start + np.flatnonzero(is_trained[start:end])
        if len(own):
            rewards = (-KL_COEF * kl[own]).tolist()
            rewards[-1] += float(batch.session_rewards[batch.sessions[index]])
            advantages[own] = reference_gae(values[own].tolist(), rewards, gamma=GAMMA, gae_lambda=GAE_LAMBDA)
    returns = (advantages + values) * is_trained
    every = advantages[is_trained]
    return (advantages - every.mean()) / (every.std() + 1e-6) * is_trained, returns


def worst_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest error, relative to the largest gradient."""
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return max(float((found[name] - gradient).abs().max()) for name, gradient in expected.items()) / largest


def gradients_of(engine: Any, optimizer: Any, prefix: str) -> dict[str, Tensor]:
    """Return the gradients of the first step, from the first moment (ZeRO 0)."""
    return {
        name.removeprefix(prefix): optimizer.state[parameter]["exp_avg"] / (1 - BETA1)
        for name, parameter in engine.module.named_parameters()
    }


def exact(model_path: Path) -> dict[str, Any]:
    """One step of policy and critic, with a clip of the value that matters only later."""
    spec = spec_of(zero_stage=0)
    policy = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    critic = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    head = nn.Linear(critic.config.hidden_size, 1, dtype=torch.float64)
    head_fill(head)
    critic.set_output_embeddings(head)
    batch = batch_for(1)
    is_trained = batch.loss_mask != 0
    logprobs, values = exact_logprobs(policy, batch), exact_values(critic, batch)
    noise = np.random.default_rng(0).normal(0, 0.2, size=len(is_trained))
    behaviour = ((logprobs.detach().numpy() + noise) * is_trained).astype(np.float32)
    batch = dataclasses.replace(batch, behaviour_logprobs=behaviour)
    engine = TrainEngine(model_path, spec)
    critic_fill(engine)
    metrics = engine.step(batch, step_version=0, optimizer_step=1)

    kl = behaviour.astype(np.float64) - logprobs.detach().numpy()
    advantages, returns = exact_targets(batch, values.detach().numpy(), kl)
    oracle = reference_loss(
        [
            ReferenceSequence(
                session=int(batch.sessions[index]),
                logprobs=logprobs.detach().numpy()[start:end].tolist(),
                behaviour_logprobs=behaviour[start:end].astype(float).tolist(),
                advantages=advantages[start:end].tolist(),
                is_trained=is_trained[start:end].tolist(),
            )
            for index, (start, end) in enumerate(itertools.pairwise(batch.sample_starts))
        ],
        spec.algorithm,
    )
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    weights = is_trained / is_trained.sum()
    now = values.detach().numpy()
    critic_loss, slopes = reference_value_loss(
        now.tolist(), now.tolist(), returns.tolist(), weights.tolist(), VALUE_CLIP
    )
    values.backward(torch.tensor(slopes, dtype=torch.float64))
    return {
        "case": "exact",
        "loss_error": abs(metrics["train/loss"] - oracle.loss),
        "critic_loss_error": abs(metrics["train/critic_loss"] - critic_loss),
        "critic_loss": critic_loss,
        "policy_gradient_error": worst_error(
            gradients_of(engine._engine, engine._optimizer, "model."), _gradients(policy)
        ),
        "critic_gradient_error": worst_error(
            gradients_of(critic_of(engine)._engine, critic_of(engine)._optimizer, "body.model."),
            _gradients(critic),
        ),
        "metrics": metrics,
        "explained_variance": 1 - (returns - now)[is_trained].var() / returns[is_trained].var(),
    }


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None
    }


def several_batches(model_path: Path, stage: int) -> dict[str, Any]:
    """Three batches of four optimizer steps, of which the first trains the critic alone."""
    spec = spec_of(
        zero_stage=stage, minibatches=2, epochs=2, learning_rate=1e-3, critic={"warmup_updates": 1}
    )
    engine = TrainEngine(model_path, spec)
    before = policy_bytes(engine)
    rows = []
    for number in (1, 2, 3):
        batch = batch_for(number)
        rows.append(engine.step(batch, step_version=number - 1, optimizer_step=4 * number - 3))
        if number == 1:
            is_unchanged = policy_bytes(engine) == before
    return {
        "case": f"stage {stage}",
        "metrics": rows,
        "is_policy_unchanged_at_first": is_unchanged,
        "is_policy_trained_later": policy_bytes(engine) != before,
    }


def policy_bytes(engine: TrainEngine) -> dict[str, bytes]:
    return {name: bytes(raw.data) for name, raw in engine.tensors().items()}


def restarted(model_path: Path, stage: int) -> dict[str, Any]:
    """A fresh engine goes on from a checkpoint, one that was moved away and back does too."""
    spec = spec_of(zero_stage=stage, minibatches=2)
    engine = TrainEngine(model_path, spec)
    engine.step(batch_for(1), step_version=0, optimizer_step=1)
    with tempfile.TemporaryDirectory() as folder:
        engine.state_save(Path(folder), "state")
        engine.state_saved(waits=True)
        fresh = TrainEngine(model_path, spec)
        fresh.state_load(Path(folder), "state")
    mover = critic_of(engine)._mover
    num_bytes = mover.take_away()
    mover.bring_back()
    rows = [each.step(batch_for(2), step_version=1, optimizer_step=3) for each in (engine, fresh)]
    names = ("train/critic_loss", "train/critic_grad_norm", "train/loss", "train/value_mean")
    return {
        "case": f"restarted at stage {stage}",
        "num_bytes_moved": num_bytes,
        "num_critic_parameters": sum(p.numel() for p in critic_of(engine)._engine.module.parameters()),
        "is_equal_to_the_bit": all(rows[0][name] == rows[1][name] for name in names)
        and policy_bytes(engine) == policy_bytes(fresh),
        "value_mean": rows[0]["train/value_mean"],
    }


def on_trees(model_path: Path, objective: str) -> dict[str, Any]:
    """One step on trees and one on the same branches written out."""
    rows, moments = [], []
    for is_tree in (True, False):
        spec = spec_of(tree=is_tree, objective=objective, zero_stage=0, kl_coef=0.0, micro_batch_tokens=4096)
        engine = TrainEngine(model_path, spec)
        critic_fill(engine)
        rows.append(engine.step(batch_of(spec, is_tree=is_tree), step_version=2, optimizer_step=1))
        parts = [
            *gradients_of(engine._engine, engine._optimizer, "").values(),
            *gradients_of(critic_of(engine)._engine, critic_of(engine)._optimizer, "").values(),
        ]
        moments.append(np.concatenate([part.double().flatten().numpy() for part in parts]))
    return {
        "case": objective,
        "num_tokens": [row["train/num_tokens"] for row in rows],
        "losses": [row["train/loss"] for row in rows],
        "critic_losses": [row["train/critic_loss"] for row in rows],
        "gradient_error": float(np.linalg.norm(moments[0] - moments[1]) / np.linalg.norm(moments[1])),
    }


def main(model_path: Path) -> None:
    num_ranks = torch.distributed.get_world_size()
    rows = [several_batches(model_path, stage) for stage in STAGES[num_ranks]]
    if num_ranks == 1:
        rows.append(exact(model_path))
        rows += [restarted(model_path, stage) for stage in (0, 3)]
        rows += [on_trees(model_path, objective) for objective in OBJECTIVES]
    if torch.distributed.get_rank() == 0:
        for row in rows:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
