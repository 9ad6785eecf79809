"""Run as a script with a model folder and one for a checkpoint: writes it as earlier releases did, after two steps.

Prints one JSON line with the metrics of a third step.
"""

import json
import sys
from pathlib import Path

import msgspec
import torch

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.checkpoint import Progress
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec

NUM_STEPS = 2
FORMAT_VERSION = 1


def main(model: Path, checkpoint: Path) -> None:
    engine = TrainEngine(model, JobSpec.model_validate(make_spec(zero_stage=1)))
    for number in range(1, NUM_STEPS + 1):
        engine.step(make_batch(number), step_version=number - 1, optimizer_step=number)
    checkpoint.mkdir(parents=True)
    engine._engine.save_checkpoint(
        str(checkpoint),
        tag="state",
        client_state={"random_state": {"cpu": torch.get_rng_state()}},
        save_latest=False,
        exclude_frozen_parameters=True,
    )
    progress = Progress(
        format_version=FORMAT_VERSION, batch_number=NUM_STEPS, version=NUM_STEPS, optimizer_step=NUM_STEPS
    )
    (checkpoint / "progress.json").write_bytes(msgspec.json.encode(progress))
    metrics = engine.step(make_batch(NUM_STEPS + 1), step_version=NUM_STEPS, optimizer_step=NUM_STEPS + 1)
    print(json.dumps({"case": "third", "loss": metrics["train/loss"]}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), Path(sys.argv[2]))
