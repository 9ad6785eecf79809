"""Run as a script: batches of several optimizer steps in float32 against a float64 model with torch's own AdamW.

Prints one JSON line per case with how far weights and metrics are from float64, how often the model was called, and
whether an engine that was killed after its first step repeats the batch to the bit. Several ranks may run it together.
"""

import dataclasses
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.batching.mini_batches import mini_batch_steps, mini_batches_cut
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step import updates
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.optimizer_step import make_optimizer_step
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec
from tests.integration.workers.train.step.trainer_deepspeed_check import TEMPERATURE, exact_logprobs
from tests.oracles.reference_loss import ReferenceSequence, reference_loss

FIRST_STEP, NUMBER = 3, 5  # the third optimizer step of a warm-up, and the batch that begins with it
DECOUPLED = {"proximal": "current", "importance": "truncate", "importance_max": 1.1}
NARROW = {"clip_low": 0.004, "clip_high": 0.004}  # so that the steps of one batch reach it
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Options of train and of the algorithm.
    "against the sampler": ({"minibatches": 2}, {"name": "dapo"}),
    "decoupled": ({"minibatches": 3, "epochs": 2}, {"name": "dapo", "off_policy": DECOUPLED, **NARROW}),
    "two passes": (
        {"epochs": 2, "zero_stage": 0},
        {"name": "grpo", "kl_coef": 0.0, "off_policy": {"proximal": "current"}, **NARROW},
    ),
    "partitioned, with a reference": (
        {"minibatches": 2, "epochs": 2, "zero_stage": 3},
        {"name": "grpo", "kl_coef": 0.2, "off_policy": DECOUPLED, **NARROW},
    ),
}

REPEATED = ("decoupled", "partitioned, with a reference")  # after a kill, and by several ranks


class Killed(Exception):
    """Raised where a trainer would be killed."""


def batch_for(model: torch.nn.Module) -> Batch:
    """Five groups, sampled by something a little off the policy, so that some ratios are clipped."""
    batch = make_batch(NUMBER, temperature=TEMPERATURE)
    noise = np.random.default_rng(0).normal(0, 0.2, size=len(batch.loss_mask))
    behaviour = (exact_logprobs(model, batch).detach().numpy() + noise) * (batch.loss_mask != 0)
    groups = (np.arange(10) // 2).astype(np.int32)
    return dataclasses.replace(
        batch,
        groups=groups,
        session_groups=groups,
        behaviour_logprobs=behaviour.astype(np.float32),
        versions=np.where(batch.loss_mask != 0, NUMBER - 1, -1).astype(np.int32),
    )


def exact_update(model: torch.nn.Module, batch: Batch, spec: JobSpec) -> dict[str, float]:
    """Make the optimizer steps in float64, in place; return the metrics that follow."""
    train = spec.train
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1.0, betas=train.adam_betas, weight_decay=train.weight_decay
    )
    start = exact_logprobs(model, batch).detach().numpy()
    parts = mini_batches_cut(batch.groups, train.minibatches, seed=spec.seed, batch_number=NUMBER)
    steps = mini_batch_steps([True] * train.minibatches, train.epochs, seed=spec.seed, batch_number=NUMBER)
    losses, distances, clipped, weights = [], [], [], []
    for step in steps:
        logprobs = exact_logprobs(model, batch)
        now = logprobs.detach().numpy()
        spans = list(itertools.pairwise(batch.sample_starts))
        own = [index for index in range(batch.num_samples) if parts[step.mini_batch][index]]
        sequences = [
            ReferenceSequence(
                session=int(batch.sessions[index]),
                logprobs=now[slice(*spans[index])].tolist(),
                behaviour_logprobs=batch.behaviour_logprobs[slice(*spans[index])].astype(float).tolist(),
                advantages=(batch.advantages_positive + batch.advantages_negative)[slice(*spans[index])]
                .astype(float)
                .tolist(),
                is_trained=(batch.loss_mask[slice(*spans[index])] != 0).tolist(),
                reference_logprobs=start[slice(*spans[index])].tolist(),
                proximal_logprobs=start[slice(*spans[index])].tolist(),
            )
            for index in own
        ]
        oracle = reference_loss(sequences, spec.algorithm)
        gradient = np.zeros_like(now)
        for index, values in zip(own, oracle.gradients, strict=True):
            gradient[slice(*spans[index])] = values
        optimizer.zero_grad()
        logprobs.backward(torch.from_numpy(gradient))
        torch.nn.utils.clip_grad_norm_(model.parameters(), train.max_grad_norm)
        num_warmup_steps = train.warmup_updates * train.minibatches * train.epochs
        optimizer.param_groups[0]["lr"] = train.learning_rate * min(
            1.0, (FIRST_STEP + step.offset) / num_warmup_steps
        )
        optimizer.step()
        is_own = (batch.loss_mask != 0) & parts[step.mini_batch][batch.layout.samples]
        losses.append(oracle.loss)
        distances.append(float((start - now)[is_own].sum()))
        clipped.append(num_clipped(now, start, batch, spec, is_own))
        weights.append(int(is_own.sum()))
    return {
        "train/loss": float(np.mean(losses)),
        "train/kl_start": sum(distances) / sum(weights),
        "train/kl_start_last": distances[-1] / weights[-1],
        "train/clip_fraction_last": clipped[-1] / weights[-1],
        "train/learning_rate": optimizer.param_groups[0]["lr"],
    }


def num_clipped(
    now: NDArray[np.float64],
    start: NDArray[np.float64],
    batch: Batch,
    spec: JobSpec,
    is_own: NDArray[np.bool_],
) -> int:
    """Return how many tokens are at a bound of the clip, with the proximal policy of the spec."""
    is_current = spec.algorithm.off_policy.proximal == "current"
    ratio = np.exp(now - (start if is_current else batch.behaviour_logprobs))
    is_low = (ratio < 1 - spec.algorithm.clip_low) & (batch.advantages_negative < 0)
    is_high = (ratio > 1 + spec.algorithm.clip_high) & (batch.advantages_positive > 0)
    return int(((is_low | is_high) & is_own).sum())


def moved(weights: dict[str, Any], before: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weights[name].double() - before[name].double() for name in before}


def weights_of(engine: TrainEngine) -> dict[str, torch.Tensor]:
    return {
        name: torch.frombuffer(bytearray(raw.data), dtype=torch.float32).reshape(raw.shape)
        for name, raw in engine.tensors().items()
    }


def step(engine: TrainEngine, batch: Batch) -> dict[str, float]:
    return engine.step(batch, step_version=NUMBER - 1, optimizer_step=FIRST_STEP)


def killed_after_one_step(engine: TrainEngine, batch: Batch) -> None:
    num_made = 0

    def make_one(*arguments: Any, **options: Any) -> float:
        nonlocal num_made
        num_made += 1
        if num_made > 1:
            raise Killed
        return make_optimizer_step(*arguments, **options)

    with patch.object(updates, "make_optimizer_step", make_one):
        try:
            step(engine, batch)
        except Killed:
            return
    raise AssertionError("the batch had a single optimizer step")


def check(name: str, model_path: Path, folder: Path) -> dict[str, Any]:
    train, algorithm = CASES[name]
    spec = JobSpec.model_validate(
        {
            **make_spec(max_grad_norm=0.5, warmup_updates=4, learning_rate=1e-3, **train),
            "algorithm": algorithm,
        }
    )
    exact = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float64)
    batch = batch_for(exact)
    before = {name: parameter.detach().clone() for name, parameter in exact.named_parameters()}
    expected = exact_update(exact, batch, spec)
    engine = TrainEngine(model_path, spec)
    engine.state_save(folder, "state")
    engine.state_saved(waits=True)
    num_calls = 0

    def count(*_: object) -> None:
        nonlocal num_calls
        num_calls += 1

    handle = engine._engine.module.register_forward_hook(count)
    metrics = step(engine, batch)
    handle.remove()
    found = weights_of(engine)
    exact_moves = moved(dict(exact.named_parameters()), before)
    errors = [found_move - exact_moves[name] for name, found_move in moved(found, before).items()]
    length = torch.stack([move.norm() for move in exact_moves.values()]).norm()
    return {
        "case": name,
        "weights_error": float(torch.stack([error.norm() for error in errors]).norm() / length),
        "metrics": metrics,
        "expected": expected,
        "num_calls": num_calls,
        **(repetition(model_path, spec, batch, folder, found) if name in REPEATED else {}),
    }


def repetition(
    model_path: Path, spec: JobSpec, batch: Batch, folder: Path, found: dict[str, torch.Tensor]
) -> dict[str, bool]:
    """Return whether an engine that begins again after a kill arrives at the weights that were found without one."""
    killed = TrainEngine(model_path, spec)
    killed_after_one_step(killed, batch)
    left = weights_of(killed)
    resumed = TrainEngine(model_path, spec)
    resumed.state_load(folder, "state")
    step(resumed, batch)
    again = weights_of(resumed)
    return {
        "is_killed_in_between": any(not torch.equal(found[key], left[key]) for key in found),
        "is_repeated_to_the_bit": all(torch.equal(found[key], again[key]) for key in found),
    }


def main(model_path: Path, folder: Path) -> None:
    for number, name in enumerate(CASES if torch.distributed.get_world_size() == 1 else REPEATED):
        row = check(name, model_path, folder / str(number))
        if torch.distributed.get_rank() == 0:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    with process_group(), tempfile.TemporaryDirectory() as own:
        main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(own))
