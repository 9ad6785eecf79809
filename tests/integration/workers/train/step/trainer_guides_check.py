"""Run as a script: steps on batches with guided answers, against a float64 model under masks that are computed apart.

Prints one JSON line per case with what the engine measured and what the float64 model says.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.guidance.masks import unpacked_mask
from seamlessflow.core.guidance.matching import Vocabulary
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.micro_batches import TrainPlan
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.guidance import NUM_TOKENS
from tests.fixtures.guided_model import write_guided_model
from tests.fixtures.guided_sessions import guided_batch, guided_vocabulary, of_another_library
from tests.fixtures.random_trees import branch_tokens
from tests.fixtures.trainer_harness import make_spec

LORA = {"rank": 4, "alpha": 8, "target_modules": ["q_proj"]}
IN_REWARD = {"kl_coef": 0.1, "kl_placement": "reward"}
# Train section, algorithm section, and whether another library computed some of the masks.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "rows": ({}, {}, False),
    "trees": ({"tree": True}, {}, False),
    "trees in parts": ({"tree": True, "micro_batch_tokens": 24}, {}, False),
    "stage 3": ({"zero_stage": 3}, {}, False),
    "penalty": ({}, IN_REWARD, False),
    "penalty in trees": ({"tree": True}, IN_REWARD, False),
    "adapter": ({"lora": LORA}, {}, False),
    "another library": ({"tree": True}, {}, True),
}


def allowed(batch: Batch, vocabulary: Vocabulary) -> torch.Tensor:
    """[T, V]: which tokens the engine could have sampled in each place."""
    table = np.ones((len(batch.token_ids), NUM_TOKENS), dtype=np.bool_)
    for start, end, number in zip(batch.guided_starts, batch.guided_ends, batch.guided_guides, strict=True):
        matcher = vocabulary.matcher(batch.header.guides[number].guide)
        for place in range(start, end):
            table[place] = unpacked_mask(matcher.mask(), num_tokens=NUM_TOKENS)
            matcher.consume(int(batch.token_ids[place]))
    return torch.from_numpy(table)


def exact_terms(
    model: torch.nn.Module, batch: Batch, vocabulary: Vocabulary
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (logprobs [T], entropies [T]) under the masks, branch by branch; the first token of a tree has none."""
    table = allowed(batch, vocabulary)
    logprobs: dict[int, torch.Tensor] = {}
    entropies: dict[int, torch.Tensor] = {}
    for branch in branch_tokens(batch.layout):
        ids = torch.from_numpy(batch.token_ids[branch].astype(np.int64))
        logits = model(input_ids=ids[None]).logits[0, :-1] / batch.header.temperature
        rows = logits.masked_fill(~table[branch[1:]], -torch.inf).log_softmax(-1)
        for place, row in zip(branch[1:], rows, strict=True):
            logprobs[place] = row[batch.token_ids[place]]
            possible = row[row.isfinite()]
            entropies[place] = -(possible.exp() * possible).sum()
    none = torch.zeros((), dtype=torch.float64)
    token_indices = range(len(batch.token_ids))
    return (
        torch.stack([logprobs.get(place, none) for place in token_indices]),
        torch.stack([entropies.get(place, none) for place in token_indices]),
    )


def exact_grad_norm(
    model: torch.nn.Module,
    terms: tuple[torch.Tensor, torch.Tensor],
    plan: TrainPlan,
    entropy_coef: float,
) -> float:
    """Of the loss whose ratios are all one: minus advantage × logprob, minus the entropies."""
    logprobs, entropies = terms
    loss = torch.zeros((), dtype=torch.float64)
    for micro in plan.micro_batches:
        both = torch.from_numpy(micro.advantages_positive + micro.advantages_negative).double()
        weights = torch.from_numpy(micro.loss_weights).double()
        loss = loss - (both * logprobs[micro.token_indices]).sum()
        loss = loss - entropy_coef * (weights * entropies[micro.token_indices]).sum()
    loss.backward()
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def check(name: str, folder: Path) -> dict[str, Any]:
    train, algorithm, is_other = CASES[name]
    spec = JobSpec.model_validate(
        make_spec(**{"micro_batch_tokens": 128, "max_grad_norm": 1e6} | train)
        | {"algorithm": {"name": "grpo", "entropy_coef": 0.05, "kl_coef": 0.1} | algorithm}
    )
    vocabulary = guided_vocabulary(folder)
    batch = guided_batch(vocabulary, is_tree=spec.train.tree)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    terms = exact_terms(model, batch, vocabulary)
    served = np.where(batch.loss_mask != 0, terms[0].detach().numpy(), 0).astype(np.float32)
    batch = dataclasses.replace(batch, behaviour_logprobs=served)
    if is_other:
        batch = of_another_library(batch, number=0)
    engine = TrainEngine(folder, spec)
    plans: list[TrainPlan] = []
    make_plan = engine._plan

    def plan_kept(*arguments: Any, **options: Any) -> TrainPlan:
        plans.append(make_plan(*arguments, **options))
        return plans[-1]

    engine._plan = plan_kept  # type: ignore[method-assign]
    metrics = engine.step(batch, step_version=0, optimizer_step=1)
    trained = np.concatenate([micro.token_indices for micro in plans[-1].micro_batches + plans[-1].measured])
    return {
        "case": name,
        "metrics": metrics,
        "num_trained": len(trained),
        "num_of_first_guide": int(sum(_tokens_of_guide(batch, 0))),
        "entropy": float(terms[1][trained].mean()),
        "grad_norm": exact_grad_norm(model, terms, plans[-1], spec.algorithm.entropy_coef),
    }


def _tokens_of_guide(batch: Batch, guide: int) -> list[int]:
    return [
        int(batch.loss_mask[start:end].sum())
        for start, end, number in zip(
            batch.guided_starts, batch.guided_ends, batch.guided_guides, strict=True
        )
        if number == guide
    ]


def main(folder: Path) -> None:
    write_guided_model(folder)
    for name in CASES:
        print(json.dumps(check(name, folder)), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
