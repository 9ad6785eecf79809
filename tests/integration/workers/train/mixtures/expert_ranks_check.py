"""Run as a script by two ranks, with the folder of `tests.fakes.mixture_models` and an empty one: experts over both.

Rank 0 prints one JSON line per family and ZeRO stage: how far a step in float32 is from float64, whether the untrained
weights are published as the model folder has them, and whether a fresh trainer goes on from a checkpoint to the bit.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import AutoEPMoELayer, process_group
from seamlessflow_workers.weights.tensors import RawTensor
from tests.integration.workers.train.mixtures.mixture_check import exact_model, noisy_batch, spec_of
from tests.integration.workers.train.step.trainer_deepspeed_check import (
    BETA1,
    exact_logprobs,
    first_moment,
    oracle_of,
)

CASES = {  # family, ZeRO stage and how many ranks share each sequence
    "qwen3_moe, stage 1": ("qwen3_moe", 1, 1),
    "qwen3_moe, stage 3": ("qwen3_moe", 3, 1),
    "deepseek_v3, stage 2": ("deepseek_v3", 2, 1),
    "qwen3_moe, stage 3, sequences shared": ("qwen3_moe", 3, 2),
    "deepseek_v3, stage 2, sequences shared": ("deepseek_v3", 2, 2),
}


def own_gradients(engine: TrainEngine, exact: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the gradients of this rank's parameters should be, by their names."""
    found = {}
    for prefix, block in engine._engine.module.named_modules():
        if isinstance(block, AutoEPMoELayer):
            before = prefix.removeprefix("model.")
            first = block.ep_rank * block.num_local_experts
            own = slice(first, first + block.num_local_experts)
            gate, up = exact[f"{before}.experts.gate_up_proj"][own].chunk(2, dim=1)
            found[f"{prefix}.experts.w1"], found[f"{prefix}.experts.w3"] = gate, up
            found[f"{prefix}.experts.w2"] = exact[f"{before}.experts.down_proj"][own]
            found[f"{prefix}.router.gate.weight"] = exact[f"{before}.gate.weight"]
    names = (name for name, _ in engine._engine.module.named_parameters() if name not in found)
    return {**found, **{name: exact[name.removeprefix("model.")] for name in names}}


def check(case: str, models: Path, folder: Path) -> dict[str, Any]:
    family, stage, num_sharing = CASES[case]
    model_path = models / family
    exact = exact_model(model_path)
    spec = spec_of(stage, num_ranks=2, parallel={"expert": 2, "sequence": num_sharing})
    batch = noisy_batch(exact)
    logprobs = exact_logprobs(exact, batch)
    oracle = oracle_of(batch, logprobs, spec)
    logprobs.backward(torch.from_numpy(np.concatenate(oracle.gradients)))
    gradients = {n: p.grad for n, p in exact.named_parameters() if p.grad is not None}
    norm = float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())
    engine = TrainEngine(model_path, spec)
    published = engine.tensors()
    metrics = engine.step(batch, step_version=0, optimizer_step=1)
    if stage < 3:
        # DeepSpeed does so after the first of several groups of parameters, when the others have no moments yet.
        engine._optimizer._hp_optimizer_states_linked = False
        engine._optimizer._lazy_init_hp_params_optimizer_state()
    expected = own_gradients(engine, gradients)
    worst, num_numbers = torch.zeros(1), 0
    for name, parameter in engine._engine.module.named_parameters():
        found = first_moment(engine, parameter) / (1 - BETA1)
        worst = torch.maximum(worst, (found - expected[name]).abs().max().float())
        num_numbers += found.numel()
    torch.distributed.all_reduce(worst, torch.distributed.ReduceOp.MAX)
    return {
        "case": case,
        "loss_error": abs(metrics["train/loss"] - oracle.loss),
        "worst_gradient_error": float(worst),
        "grad_norm": norm,
        "grad_norm_error": abs(metrics["train/grad_norm"] - norm) / norm,
        "share_of_numbers": num_numbers / sum(parameter.numel() for parameter in exact.parameters()),
        "is_published_as_stored": same(published, load_file(model_path / "model.safetensors")),
        "is_resumed_to_the_bit": is_resumed(engine, model_path, folder / case),
    }


def same(published: Mapping[str, RawTensor], stored: Mapping[str, Tensor]) -> bool:
    tied = {"lm_head.weight": stored["model.embed_tokens.weight"], **stored}
    return all(bytes(raw.data) == tied[name].numpy().tobytes() for name, raw in published.items())


def is_resumed(engine: TrainEngine, model_path: Path, folder: Path) -> bool:
    engine.state_save(folder, "state")
    engine.state_saved(waits=True)
    fresh = TrainEngine(model_path, engine._spec)
    fresh.state_load(folder, "state")
    batch = noisy_batch(exact_model(model_path), number=2)
    values = []
    for each in (engine, fresh):
        each.step(batch, step_version=1, optimizer_step=2)
        values.append({name: bytes(raw.data) for name, raw in each.tensors().items()})
    return values[0] == values[1]


def main(models: Path, folder: Path) -> None:
    for case in CASES:
        row = check(case, models, folder)
        if torch.distributed.get_rank() == 0:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    with process_group():
        main(*map(Path, sys.argv[1:]))
