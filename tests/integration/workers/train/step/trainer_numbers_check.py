"""Run as a script: real steps on batches that hold what no step should ever see, in every ZeRO stage and number format.

Prints one JSON line per case with what became of weights and metrics, and whether a step behind it is the one that an
engine takes which saw nothing of it.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group
from tests.fixtures.trainer_harness import make_batch, make_spec

CASES = [f"{dtype} stage {stage}" for dtype in ("float32", "bfloat16") for stage in (0, 1, 2, 3)]
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def weights_of(engine: TrainEngine) -> torch.Tensor:
    return torch.cat(
        [
            torch.frombuffer(bytearray(raw.data), dtype=_DTYPES[raw.dtype]).float()
            for raw in engine.tensors().values()
        ]
    )


def disagreed_about(batch: Batch) -> Batch:
    """The sampler gave one token of each sign a probability of e^-300, the trainer thinks nothing of it."""
    behaviour = batch.behaviour_logprobs.copy()
    for part in (batch.advantages_positive > 0, batch.advantages_negative < 0):
        behaviour[np.flatnonzero(part)[0]] = -300.0
    return dataclasses.replace(batch, behaviour_logprobs=behaviour)


def without_bounds(batch: Batch) -> Batch:
    """An advantage beyond all numbers."""
    advantages = batch.advantages_positive.copy()
    advantages[np.flatnonzero(advantages)[0]] = np.inf
    return dataclasses.replace(batch, advantages_positive=advantages)


def of_nothing(batch: Batch) -> Batch:
    """Not one sample."""
    arrays = [one.name for one in dataclasses.fields(batch) if one.name not in ("header", "sample_starts")]
    none_of_it: dict[str, Any] = {name: getattr(batch, name)[:0] for name in arrays}
    return dataclasses.replace(batch, sample_starts=batch.sample_starts[:1], **none_of_it)


def engine_of(case: str, model_path: Path) -> TrainEngine:
    dtype, _, stage = case.split()
    spec = {**make_spec(zero_stage=int(stage)), "model": {"source": "artifact://test", "dtype": dtype}}
    return TrainEngine(model_path, JobSpec.model_validate(spec))


def check(case: str, model_path: Path) -> dict[str, object]:
    usual = engine_of(case, model_path).step(make_batch(1), step_version=0, optimizer_step=1)
    engine = engine_of(case, model_path)
    before = weights_of(engine)
    outlier = engine.step(disagreed_about(make_batch(1)), step_version=0, optimizer_step=1)
    moved = weights_of(engine)

    engine, undisturbed = engine_of(case, model_path), engine_of(case, model_path)
    infinite = engine.step(without_bounds(make_batch(1)), step_version=0, optimizer_step=1)
    kept = weights_of(engine)
    empty = engine.step(of_nothing(make_batch(1)), step_version=0, optimizer_step=1)
    left = weights_of(engine)
    for one in (engine, undisturbed):
        after = one.step(make_batch(2), step_version=1, optimizer_step=2)
    return {
        "case": case,
        "outlier_is_finite": bool(torch.isfinite(moved).all())
        and all(math.isfinite(value) for value in outlier.values()),
        "outlier_moves": bool((moved != before).any()),
        "outlier_skipped": outlier["train/update_skipped"],
        "infinite_moves": bool((kept != before).any()),
        "infinite_skipped": infinite["train/update_skipped"],
        "empty_moves": bool((left != before).any()),
        "empty_is_finite": all(math.isfinite(value) for value in empty.values()),
        "skipped_afterwards": after["train/update_skipped"],
        "names_are_kept": usual.keys() == outlier.keys() == infinite.keys(),
        "goes_on_as_if_nothing_had_been": bool((weights_of(engine) == weights_of(undisturbed)).all())
        and bool((weights_of(engine) != before).any()),
    }


def main(model_path: Path) -> None:
    for case in CASES:
        print(json.dumps(check(case, model_path)), flush=True)


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]))
