"""Run as a script: two steps with the states taken away and brought back between them, and two without, by ZeRO stage.

Prints one JSON line per case: metrics and a digest of the weights after both steps, of either run.
"""

import hashlib
import json
import sys
from pathlib import Path

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.distributed import process_group
from seamlessflow_workers.train.engine import TrainEngine
from tests.integration.trainer_harness import make_batch, make_spec

NAMES = ("train/loss", "train/grad_norm")


def two_steps(model: Path, spec: JobSpec, *, goes_away: bool) -> list[object]:
    engine = TrainEngine(model, spec)
    engine.step(make_batch(1), step_version=0, optimizer_step=1)
    if goes_away:
        engine._mover.take_away()  # the engine itself leaves the states of a processor where they are
        engine.reload()
    metrics = engine.step(make_batch(2), step_version=1, optimizer_step=2)
    digest = hashlib.sha256()
    for _, tensor in sorted(engine.tensors().items()):
        digest.update(tensor.data)
    return [*(metrics[name] for name in NAMES), digest.hexdigest()]


def main(model: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        for stage in (0, 1, 2, 3):
            plain = make_spec(zero_stage=stage)
            model_section = {"source": "artifact://test", "dtype": dtype}
            algorithm = {"kl_coef": 0.1}  # a reference model beside it
            spec = JobSpec.model_validate({**plain, "model": model_section, "algorithm": algorithm})
            results = [two_steps(model, spec, goes_away=goes_away) for goes_away in (False, True)]
            print(
                json.dumps({"case": f"{dtype} {stage}", "stayed": results[0], "went": results[1]}), flush=True
            )


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
