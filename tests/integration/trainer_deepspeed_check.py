"""Run as a script: one DeepSpeed step per ZeRO stage against a float64 model fed with the oracle's gradient.

Prints one JSON line per stage with what the engine measured and how far gradients and loss are from float64.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import torch
from deepspeed.utils import safe_get_full_optimizer_state
from transformers import AutoModelForCausalLM

from seamlessflow.core.algorithms.reference_loss import reference_loss
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.distributed import process_group_start
from seamlessflow_workers.train.engine import TrainEngine
from tests.integration.trainer_harness import make_batch, make_spec

TEMPERATURE = 0.7
BETA1 = 0.9


def exact_logprobs(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """[T] at the trained positions, sample by sample, without any padding; 0 elsewhere."""
    parts = []
    for start, end in zip(batch.sample_starts[:-1], batch.sample_starts[1:], strict=True):
        ids = torch.from_numpy(batch.token_ids[start:end].astype(np.int64))[None]
        logits = model(input_ids=ids).logits[0, :-1] / TEMPERATURE
        chosen = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        parts += [torch.zeros(1, dtype=chosen.dtype), chosen]
    return torch.cat(parts) * torch.from_numpy(batch.loss_mask != 0)


def main(model_path: Path) -> None:
    process_group_start()
    exact = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    batch = make_batch(1, temperature=TEMPERATURE)
    logprobs = exact_logprobs(exact, batch)
    trained = batch.loss_mask != 0
    # The sampler is a little off the policy, so that some ratios are clipped.
    noise = np.random.default_rng(0).normal(0, 0.2, size=trained.shape)
    behaviour = ((logprobs.detach().numpy() + noise) * trained).astype(np.float32)
    oracle = reference_loss(
        logprobs=logprobs.detach().numpy()[trained],
        behaviour_logprobs=behaviour[trained].astype(np.float64),
        advantages=(batch.advantages_positive + batch.advantages_negative)[trained].astype(np.float64),
        clip_low=0.2,
        clip_high=0.28,
        num_trained_tokens=int(trained.sum()),
    )
    logprobs[torch.from_numpy(trained)].backward(torch.from_numpy(oracle.gradient))
    gradients = {name: parameter.grad for name, parameter in exact.named_parameters()}
    norm = torch.stack([g.norm() for g in gradients.values() if g is not None]).norm()
    for stage in (0, 1, 2, 3):
        spec = JobSpec.model_validate(
            {
                **make_spec(
                    zero_stage=stage, max_grad_norm=1000.0, adam_betas=(BETA1, 0.95), warmup_updates=0
                ),
                "algorithm": {"kl_coef": 0.0 if stage else 1e-9},  # a reference model that weighs nothing
            }
        )
        engine = TrainEngine(model_path, spec)
        noisy = dataclasses.replace(batch, behaviour_logprobs=behaviour)
        metrics = engine.step(noisy, step_version=0, optimizer_step=1)
        worst = 0.0
        for name, parameter in engine._engine.module.named_parameters():
            expected = gradients[name.removeprefix("model.")]
            assert expected is not None
            if stage == 0:
                first_moment = engine._optimizer.state[parameter]["exp_avg"]
            else:
                first_moment = safe_get_full_optimizer_state(parameter, "exp_avg")
            assert isinstance(first_moment, torch.Tensor)
            worst = max(worst, float((first_moment / (1 - BETA1) - expected).abs().max()))
        served = dataclasses.replace(batch, behaviour_logprobs=logprobs.detach().numpy().astype(np.float32))
        fresh = TrainEngine(model_path, spec).step(served, step_version=0, optimizer_step=1)
        tensors = engine.tensors()
        row = {
            "stage": stage,
            "loss_error": abs(metrics["train/loss"] - oracle.loss),
            "grad_norm_error": abs(metrics["train/grad_norm"] - float(norm)) / float(norm),
            "worst_gradient_error": worst,
            "grad_norm": float(norm),
            "clipped": metrics["train/clip_fraction_low"] + metrics["train/clip_fraction_high"],
            "mismatch_max": fresh["train/mismatch_max"],
            "kl_reference": metrics.get("train/kl_reference"),
            "num_tensors": len(tensors),
            "num_bytes": sum(tensor.num_bytes for tensor in tensors.values()),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
