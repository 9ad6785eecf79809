"""Run as a script: one step on trees and one on the same branches written out, by objective and option.

Prints one JSON line per case with how far losses and updated weights are apart, and how many tokens each computed.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from deepspeed.utils import safe_get_full_optimizer_state
from numpy.typing import NDArray

from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec, TrainObjective
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.random_sessions import random_session
from tests.fixtures.trainer_harness import JOB, VOCABULARY, make_spec

Floats = NDArray[np.float64]
ACROSS_RANKS = 2  # arguments with which all ranks train together

CASES: dict[str, dict[str, object]] = {
    "once": {"objective": "once"},
    "by_leaves": {"objective": "by_leaves"},
    "cut": {"objective": "by_leaves", "micro_batch_tokens": 24},
    "checkpointing": {"objective": "by_leaves", "gradient_checkpointing": True},
    "bfloat16": {"objective": "by_leaves", "dtype": "bfloat16"},
}


def batch_of(spec: JobSpec, *, is_tree: bool) -> Batch:
    rng = np.random.default_rng(11)
    groups = [
        [
            FinishedSession(
                float(rng.integers(0, 2)), random_session(rng, num_nodes=40, vocabulary=VOCABULARY)
            )
            for _ in range(4)
        ]
        for _ in range(3)
    ]
    plan = BatchPlan(
        job_id=str(JOB),
        number=1,
        policy_version=2,
        temperature=0.8,
        algorithm=spec.algorithm,
        objective=TrainObjective(spec.train.objective),
        is_tree=is_tree,
    )
    return assemble_batch(groups, plan)


def step(model_path: Path, spec: JobSpec) -> tuple[dict[str, float], Floats]:
    """Metrics, and all gradients as the optimizer saw them, from its first moment."""
    engine = TrainEngine(model_path, spec)
    batch = batch_of(spec, is_tree=spec.train.tree)
    metrics = engine.step(batch, step_version=2, optimizer_step=1)
    moments = [safe_get_full_optimizer_state(p, "exp_avg") for p in engine._engine.module.parameters()]
    if moments[0] is None:  # neither partitioned nor in bfloat16
        moments = [engine._optimizer.state[p]["exp_avg"] for p in engine._engine.module.parameters()]
    return metrics, np.concatenate([moment.double().flatten().numpy() for moment in moments])


def make_case(options: dict[str, object], *, is_tree: bool) -> JobSpec:
    """What is tried is tried on trees; the branches are always trained in the plainest way."""
    own = {"micro_batch_tokens": 4096, **options}
    dtype = own.pop("dtype", "float32")
    if not is_tree:
        own = {"micro_batch_tokens": 4096, "objective": options["objective"]}
    train = {"tree": is_tree, "zero_stage": 0 if dtype == "float32" else 1, "max_grad_norm": 1e9, **own}
    return JobSpec.model_validate(
        {
            **make_spec(**train, warmup_updates=0),
            "model": {"source": "artifact://test", "dtype": dtype},
            "algorithm": {"kl_coef": 0.1},
        }
    )


def across_ranks(model_path: Path) -> None:
    """One step by all ranks of the group together, in every ZeRO stage, on trees that are cut into several packs."""
    options: dict[str, object] = {"objective": "by_leaves", "micro_batch_tokens": 40}
    for stage in (0, 1, 2, 3):
        spec = make_case({**options, "zero_stage": stage}, is_tree=True)
        metrics, moments = step(model_path, spec)
        if torch.distributed.get_rank() == 0:
            print(json.dumps({"case": f"stage {stage}", "metrics": metrics, "moments": moments.tolist()}))


def on_one_rank(model_path: Path) -> None:
    for case, options in CASES.items():
        results = {}
        for is_tree in (True, False):
            results[is_tree] = step(model_path, make_case(options, is_tree=is_tree))
        (tree, moments), (linear, expected) = results[True], results[False]
        row = {
            "case": case,
            "loss": tree["train/loss"],
            "loss_error": abs(tree["train/loss"] - linear["train/loss"]),
            "gradient_error": float(np.linalg.norm(moments - expected) / np.linalg.norm(expected)),
            "num_tokens": [tree["train/num_tokens"], linear["train/num_tokens"]],
            "num_linear_tokens": [tree["train/num_linear_tokens"], linear["train/num_linear_tokens"]],
            "num_computed_tokens": [tree["train/num_computed_tokens"], linear["train/num_computed_tokens"]],
            "num_micro_batches": tree["train/num_micro_batches"],
            "clipped": tree["train/clip_fraction_low"] + tree["train/clip_fraction_high"],
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    with process_group():
        if len(sys.argv) > ACROSS_RANKS:
            across_ranks(Path(sys.argv[1]))
        else:
            on_one_rank(Path(sys.argv[1]))
