"""Run as a script, by each rank: `MODELS FOLDER write`, then with more ranks `MODELS FOLDER read`, over spread experts.

`MODELS` is the folder of `tests.fakes.mixture_models`. The writer takes a step and saves; the reader loads that with
its experts spread over more ranks. Either leaves what it publishes then (`before/…`) and after a second step
(`after/…`) in FOLDER.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.integration.workers.train.mixtures.mixture_check import exact_model, noisy_batch, spec_of

CASES = {"qwen3_moe, stage 1": ("qwen3_moe", 1), "deepseek_v3, stage 3": ("deepseek_v3", 3)}


def published(engine: TrainEngine, when: str) -> dict[str, Tensor]:
    return {
        f"{when}/{name}": torch.frombuffer(bytearray(raw.data), dtype=torch.float32)
        for name, raw in engine.tensors().items()
    }


def main(models: Path, folder: Path, what: str) -> None:
    num_ranks = torch.distributed.get_world_size()
    for case, (family, stage) in CASES.items():
        exact = exact_model(models / family)
        engine = TrainEngine(
            models / family, spec_of(stage, num_ranks=num_ranks, parallel={"expert": num_ranks})
        )
        if what == "write":
            engine.step(noisy_batch(exact), step_version=0, optimizer_step=1)
            engine.state_save(folder / case, "state")
            engine.state_saved(waits=True)
        else:
            engine.state_load(folder / case, "state")
        tensors = published(engine, "before")
        engine.step(noisy_batch(exact, number=2), step_version=1, optimizer_step=2)
        tensors |= published(engine, "after")
        if torch.distributed.get_rank() == 0:
            save_file(tensors, folder / f"{case}.{what}")
            print(json.dumps({"case": case}), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
