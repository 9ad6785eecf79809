"""Run as a script: DeepSpeed steps of a LoRA adapter in float32 against a float64 model with merged weights.

The first step moves B off zero; the second is compared, so that A has a gradient too. Prints one JSON line per case
with how far loss and gradients are from float64, and whether a fresh engine goes on from a checkpoint to the bit.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec
from tests.integration.workers.train.step.trainer_deepspeed_check import (
    BETA1,
    TEMPERATURE,
    exact_logprobs,
    first_moment,
    oracle_of,
)

RANK, ALPHA = 3, 12.0
PREFIX = "base_model.model."
IN_LOSS = {"name": "dapo", "kl_coef": 0.2}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # Options of train, of train.lora and of the algorithm.
    **{f"stage {stage}": ({"zero_stage": stage}, {}, IN_LOSS) for stage in (0, 1, 2, 3)},
    "some layers": ({}, {"target_modules": ["q_proj", "down_proj"]}, IN_LOSS),
    "kl in reward": (
        {"zero_stage": 3},
        {},
        {"name": "reinforce_plus_plus", "kl_coef": 0.1, "sampling": {"history": False}},
    ),
    "checkpointing": ({"gradient_checkpointing": True}, {}, IN_LOSS),
    "no trees": ({"tree": False}, {}, IN_LOSS),
}


class Merged(torch.nn.Module):
    """A float64 model whose weights are base + scale·B·A, computed from leaves that take gradients."""

    def __init__(self, model: PreTrainedModel, adapter: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._model = model
        self._base = {name: tensor.detach() for name, tensor in model.named_parameters()}
        self.leaves = {name: tensor.double().requires_grad_() for name, tensor in adapter.items()}

    def forward(self, input_ids: Tensor) -> Any:
        weights = dict(self._base)
        for name, down in self.leaves.items():
            if ".lora_A." in name:
                up = self.leaves[name.replace(".lora_A.", ".lora_B.")]
                weight = name.removeprefix(PREFIX).replace(".lora_A", "")
                weights[weight] = self._base[weight] + ALPHA / RANK * (up @ down)
        return functional_call(self._model, weights, kwargs={"input_ids": input_ids}, tie_weights=True)


def adapter_of(engine: TrainEngine) -> dict[str, Tensor]:
    return {
        name: torch.frombuffer(bytearray(raw.data), dtype=torch.float32).reshape(raw.shape)
        for name, raw in engine.tensors().items()
    }


def trained(engine: TrainEngine) -> dict[str, Tensor]:
    """Parameters that take gradients, by their names in the adapter's file."""
    return {
        PREFIX + name.removeprefix("model.").replace(".default.", "."): parameter
        for name, parameter in engine._engine.module.named_parameters()
        if parameter.requires_grad
    }


def noisy_batch(number: int, logprobs: Tensor) -> Batch:
    """The sampler is a little off the policy, so that some ratios are clipped."""
    batch = make_batch(number, temperature=TEMPERATURE)
    noise = np.random.default_rng(number).normal(0, 0.2, size=len(batch.loss_mask))
    behaviour = (logprobs.detach().numpy() + noise) * (batch.loss_mask != 0)
    return dataclasses.replace(batch, behaviour_logprobs=behaviour.astype(np.float32))


def check(name: str, model_path: Path) -> dict[str, Any]:
    train, lora, algorithm = CASES[name]
    adapter = {"rank": RANK, "alpha": ALPHA, **lora}
    options = {"max_grad_norm": 1000.0, "adam_betas": (BETA1, 0.95), "warmup_updates": 0, "lora": adapter}
    spec = JobSpec.model_validate({**make_spec(**options, **train), "algorithm": algorithm})
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    engine = TrainEngine(model_path, spec)
    starting = adapter_of(engine)
    first = noisy_batch(1, exact_logprobs(model, make_batch(1, temperature=TEMPERATURE)))
    engine.step(first, step_version=0, optimizer_step=1)
    merged = Merged(model, adapter_of(engine))
    blank = make_batch(2, temperature=TEMPERATURE)
    logprobs, reference = exact_logprobs(merged, blank), exact_logprobs(model, blank)
    batch = noisy_batch(2, logprobs)
    oracle = oracle_of(batch, logprobs, spec, reference=reference)
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    before = {name: first_moment(engine, parameter) for name, parameter in trained(engine).items()}
    with tempfile.TemporaryDirectory() as folder:
        engine.state_save(Path(folder), "state")
        engine.state_saved(waits=True)
        metrics = engine.step(batch, step_version=1, optimizer_step=2)
        fresh = TrainEngine(model_path, spec)
        fresh.state_load(Path(folder), "state")
        saved_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    worst = norm_squared = 0.0
    for parameter_name, parameter in trained(engine).items():
        expected = merged.leaves[parameter_name].grad
        assert expected is not None
        found = (first_moment(engine, parameter) - BETA1 * before[parameter_name]) / (1 - BETA1)
        worst = max(worst, float((found - expected).abs().max()))
        norm_squared += float(expected.square().sum())
    again = fresh.step(batch, step_version=1, optimizer_step=2)
    resumed, undisturbed = adapter_of(fresh), adapter_of(engine)
    return {
        "case": name,
        "loss_error": abs(metrics["train/loss"] - oracle.loss),
        "grad_norm_error": abs(metrics["train/grad_norm"] - norm_squared**0.5) / norm_squared**0.5,
        "worst_gradient_error": worst,
        "grad_norm": norm_squared**0.5,
        "kl_reference": metrics["train/kl_reference"],
        "starts_as_the_model": all(not tensor.any() for key, tensor in starting.items() if "lora_B" in key),
        "is_resumed_to_the_bit": again["train/loss"] == metrics["train/loss"]
        and all(torch.equal(resumed[key], undisturbed[key]) for key in undisturbed),
        "names": sorted(undisturbed),
        "adapter_bytes": sum(tensor.numel() * 4 for tensor in undisturbed.values()),
        "model_bytes": sum(parameter.numel() * 4 for parameter in model.parameters()),
        "saved_bytes": saved_bytes,
    }


def main(model_path: Path) -> None:
    for name in CASES:
        print(json.dumps(check(name, model_path)), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
