"""Run as a script: DeepSpeed steps in float32 against a float64 model fed with the oracle's gradient.

Prints one JSON line per case with what the engine measured and how far gradients and loss are from float64. The cases:
every ZeRO stage, then every algorithm.
"""

import dataclasses
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepspeed.utils import safe_get_full_optimizer_state
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.micro_batches import TrainPlan
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.plain_advantages import plain_kl_advantages
from tests.fixtures.trainer_harness import make_batch, make_spec
from tests.oracles.reference_loss import ReferenceLoss, ReferenceSequence, reference_loss

TEMPERATURE = 0.7
BETA1 = 0.9
REFERENCE_THAT_WEIGHS_NOTHING = 1e-9
# The critic of PPO has a check of its own (`trainer_critic_check`).
ALGORITHMS = [name for name in AlgorithmName if name is not AlgorithmName.PPO]


def cases() -> dict[str, tuple[int, dict[str, Any]]]:
    """ZeRO stage and algorithm section by name."""
    stages = {
        f"stage {stage}": (
            stage,
            {"name": "dapo", "kl_coef": 0.0 if stage else REFERENCE_THAT_WEIGHS_NOTHING},
        )
        for stage in (0, 1, 2, 3)
    }
    no_tasks = {"sampling": {"history": False}}  # the harness has none to choose from
    return {**stages, **{name.value: (1, {"name": name.value, **no_tasks}) for name in ALGORITHMS}}


def exact_logprobs(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """[T] at the trained positions, sample by sample, without any padding; 0 elsewhere."""
    parts = []
    for start, end in zip(batch.sample_starts[:-1], batch.sample_starts[1:], strict=True):
        ids = torch.from_numpy(batch.token_ids[start:end].astype(np.int64))[None]
        logits = model(input_ids=ids).logits[0, :-1] / TEMPERATURE
        chosen = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        parts += [torch.zeros(1, dtype=chosen.dtype), chosen]
    return torch.cat(parts) * torch.from_numpy(batch.loss_mask != 0)


def without_advantages_from(batch: Batch, *, sample: int) -> Batch:
    """The later samples as if their group had earned equal rewards."""
    has_advantage = np.arange(len(batch.token_ids)) < batch.sample_starts[sample]
    return dataclasses.replace(
        batch,
        advantages_positive=np.where(has_advantage, batch.advantages_positive, np.float32(0)),
        advantages_negative=np.where(has_advantage, batch.advantages_negative, np.float32(0)),
    )


def token_weights(plan: TrainPlan, num_tokens: int) -> NDArray[np.float64]:
    """[T] how often each token counts in the metrics."""
    weights = np.zeros(num_tokens)
    for micro_batches, weight in ((plan.micro_batches, 1.0), (plan.measured, plan.measured_weight)):
        for micro_batch in micro_batches:
            weights[micro_batch.token_indices] = weight
    return weights


def exact_figures(model: torch.nn.Module, batch: Batch, weights: NDArray[np.float64]) -> dict[str, float]:
    """With [T] weights of the tokens: mean entropy, effective sample size as a share, k1 to the sampler."""
    entropies = []
    for start, end in zip(batch.sample_starts[:-1], batch.sample_starts[1:], strict=True):
        ids = torch.from_numpy(batch.token_ids[start:end].astype(np.int64))[None]
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0, :-1] / TEMPERATURE, -1)
        entropies += [np.zeros(1), -(logprobs.exp() * logprobs).sum(-1).detach().numpy()]
    log_ratio = exact_logprobs(model, batch).detach().numpy() - batch.behaviour_logprobs
    ratio = np.exp(log_ratio)

    def mean(values: NDArray[np.floating]) -> float:
        return float(np.average(values, weights=weights))

    return {
        "train/entropy": mean(np.concatenate(entropies)),
        "train/ess": mean(ratio) ** 2 / mean(np.square(ratio)),
        "train/kl_behaviour": -mean(log_ratio),
    }


def oracle_of(
    batch: Batch, logprobs: torch.Tensor, spec: JobSpec, *, reference: torch.Tensor | None = None
) -> ReferenceLoss:
    """`reference`: logprobs of the initial policy; by default the policy itself, not trained yet."""
    exact = logprobs.detach().numpy()
    initial = exact if reference is None else reference.detach().numpy()
    advantages = (batch.advantages_positive + batch.advantages_negative).astype(np.float64)
    if spec.algorithm.is_kl_in_reward:
        advantages = plain_kl_advantages(batch, initial, spec.algorithm)
    sequences = [
        ReferenceSequence(
            session=int(batch.sessions[index]),
            logprobs=exact[start:end].tolist(),
            behaviour_logprobs=batch.behaviour_logprobs[start:end].astype(np.float64).tolist(),
            advantages=advantages[start:end].tolist(),
            is_trained=(batch.loss_mask[start:end] != 0).tolist(),
            reference_logprobs=initial[start:end].tolist(),
        )
        for index, (start, end) in enumerate(itertools.pairwise(batch.sample_starts))
    ]
    return reference_loss(sequences, spec.algorithm, aggregation_constant=spec.aggregation_constant)


def first_moment(engine: TrainEngine, parameter: torch.Tensor) -> torch.Tensor:
    if engine._spec.train.zero_stage == 0:
        moment = engine._optimizer.state[parameter]["exp_avg"]
    else:
        moment = safe_get_full_optimizer_state(parameter, "exp_avg")
    assert isinstance(moment, torch.Tensor)
    return moment.clone()


def check(name: str, model_path: Path, noisy: Batch, stage: int, options: dict[str, Any]) -> dict[str, Any]:
    exact = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    logprobs = exact_logprobs(exact, noisy)
    train = {"zero_stage": stage, "max_grad_norm": 1000.0, "adam_betas": (BETA1, 0.95), "warmup_updates": 0}
    spec = JobSpec.model_validate({**make_spec(**train), "algorithm": options})
    oracle = oracle_of(noisy, logprobs, spec)
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    gradients = {name: parameter.grad for name, parameter in exact.named_parameters()}
    norm = torch.stack([g.norm() for g in gradients.values() if g is not None]).norm()
    engine = TrainEngine(model_path, spec)
    metrics = engine.step(noisy, step_version=0, optimizer_step=1)
    worst = 0.0
    for parameter_name, parameter in engine._engine.module.named_parameters():
        expected = gradients[parameter_name.removeprefix("model.")]
        assert expected is not None
        worst = max(worst, float((first_moment(engine, parameter) / (1 - BETA1) - expected).abs().max()))
    served = dataclasses.replace(noisy, behaviour_logprobs=logprobs.detach().numpy().astype(np.float32))
    fresh_engine = TrainEngine(model_path, spec)
    nothing = np.zeros_like(served.advantages_positive)
    flat = dataclasses.replace(served, advantages_positive=nothing, advantages_negative=nothing)
    # Changes nothing, but for a loss that trains samples without an advantage as well.
    untrained = fresh_engine.step(flat, step_version=0, optimizer_step=1)
    if "train/grad_norm" in untrained:
        fresh_engine = TrainEngine(model_path, spec)
    fresh = fresh_engine.step(served, step_version=0, optimizer_step=1)
    tensors = engine.tensors()
    half = without_advantages_from(noisy, sample=5)
    half_engine = TrainEngine(model_path, spec)
    half_plan = half_engine._plan(half, 0, None)
    measured = half_engine.step(half, step_version=0, optimizer_step=1)
    return {
        "case": name,
        "loss_error": abs(metrics["train/loss"] - oracle.loss),
        "grad_norm_error": abs(metrics["train/grad_norm"] - float(norm)) / float(norm),
        "worst_gradient_error": worst,
        "grad_norm": float(norm),
        "clipped": metrics["train/clip_fraction"],
        "mismatch_max": fresh["train/mismatch_max"],
        "untrained_mismatch_max": untrained["train/mismatch_max"],
        "kl_reference": metrics.get("train/kl_reference"),
        "half_flat": {name: measured[name] for name in ("train/entropy", "train/ess", "train/kl_behaviour")},
        "half_exact": exact_figures(exact, half, token_weights(half_plan, len(half.token_ids))),
        "num_measured": sum(micro_batch.num_sequences for micro_batch in half_plan.measured),
        "num_tensors": len(tensors),
        "num_bytes": sum(tensor.num_bytes for tensor in tensors.values()),
        "has_compiler": "torch._inductor.compile_fx" in sys.modules,
    }


def main(model_path: Path) -> None:
    batch = make_batch(1, temperature=TEMPERATURE)
    policy = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    exact = exact_logprobs(policy, batch).detach().numpy()
    trained = batch.loss_mask != 0
    # The sampler is a little off the policy, so that some ratios are clipped.
    noise = np.random.default_rng(0).normal(0, 0.2, size=trained.shape)
    noisy = dataclasses.replace(batch, behaviour_logprobs=((exact + noise) * trained).astype(np.float32))
    for name, (stage, options) in cases().items():
        row = check(name, model_path, noisy, stage, options)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
