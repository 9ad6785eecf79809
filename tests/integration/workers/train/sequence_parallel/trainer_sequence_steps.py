"""Run by all ranks of a launcher with a model folder, the number of ranks that share sequences, and cases.

Prints one JSON line per case with the metrics of a step of the trainer, and with all gradients as its optimizer saw
them.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepspeed.utils import safe_get_full_optimizer_state

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_spec
from tests.integration.workers.train.trees.trainer_trees_check import batch_of

IN_LOSS: dict[str, Any] = {"kl_coef": 0.1, "entropy_coef": 0.01}
IN_REWARD = {"name": "reinforce_plus_plus", "kl_coef": 0.1}
# Options of train, and of the algorithm.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{f"stage {stage}": ({"zero_stage": stage}, IN_LOSS) for stage in (0, 1, 3)},
    "branches": ({"tree": False, "zero_stage": 2}, IN_LOSS),
    "ratios of sequences": ({"zero_stage": 3}, {"name": "gspo"}),
    "KL in the reward": ({"zero_stage": 3}, IN_REWARD),
    "an adapter": ({"lora": {"rank": 3}, "zero_stage": 2}, IN_LOSS),
    "checkpointed activations": ({"gradient_checkpointing": True, "zero_stage": 3}, IN_LOSS),
    "mini-batches": (
        {"minibatches": 2, "epochs": 2, "zero_stage": 3},
        {"name": "gspo", "off_policy": {"proximal": "current"}},
    ),
    "bfloat16": ({"zero_stage": 2}, IN_LOSS),
}


def case_spec(name: str, num_sharing: int) -> JobSpec:
    train, algorithm = CASES[name]
    parallel = {"num_ranks": num_sharing, "parallel": {"sequence": num_sharing}}
    options = {"micro_batch_tokens": 80, "max_grad_norm": 1e9, "warmup_updates": 0, **parallel, **train}
    model = {"source": "artifact://test", "dtype": "bfloat16" if name == "bfloat16" else "float32"}
    return JobSpec.model_validate({**make_spec(**options), "algorithm": algorithm, "model": model})


def main(model_path: Path, num_sharing: int, names: Sequence[str]) -> None:
    for name in names:
        spec = case_spec(name, num_sharing)
        engine = TrainEngine(model_path, spec)
        metrics = engine.step(batch_of(spec, is_tree=spec.train.tree), step_version=2, optimizer_step=1)
        trained = [p for p in engine._engine.module.parameters() if p.requires_grad]
        moments = [safe_get_full_optimizer_state(p, "exp_avg") for p in trained]
        if moments[0] is None:  # nothing is partitioned
            moments = [engine._optimizer.state[p]["exp_avg"] for p in trained]
        flat = np.concatenate([moment.double().flatten().numpy() for moment in moments])
        if torch.distributed.get_rank() == 0:
            print(json.dumps({"case": name, "metrics": metrics, "moments": flat.tolist()}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
