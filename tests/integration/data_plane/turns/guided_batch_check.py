"""Run as a script with a model folder and a batch: one training step; prints its metrics as a JSON line."""

import json
import sys
from pathlib import Path

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_spec


def main(model: Path, batch: Path) -> None:
    spec = JobSpec.model_validate(make_spec(tree=True) | {"algorithm": {"kl_coef": 0.1}})
    metrics = TrainEngine(model, spec).step(
        batch_decode(batch.read_bytes()), step_version=0, optimizer_step=1
    )
    print(json.dumps({"case": "step", "metrics": metrics}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), Path(sys.argv[2]))
