"""Run as a script with a model folder and the JSON of a `Trial`: one rank of a trainer, and the memory that it needs.

Prints one JSON line, whose case is the rank, with peaks of anonymous bytes above what the process held before: while
its model is loaded and, if the trial has steps, while the engine is made and in each step, with some metrics.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import torch
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

from seamlessflow.core.batching.format import Batch, BatchHeader
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.trajectory.tree_layout import NO_PARENT
from seamlessflow_workers.train import preload as preload  # what is imported later would count as the model's
from seamlessflow_workers.train.step import policy
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import deepspeed, process_group
from tests.fixtures.anonymous_memory import PeakWatch, anonymous_bytes, freed_memory_keep_little
from tests.fixtures.trainer_harness import JOB, batch_of_arrays

NUM_SAMPLES = 4
PARTITIONED_WEIGHTS = 3  # ZeRO stage
METRICS = ("train/loss", "train/grad_norm")


class Trial(msgspec.Struct, frozen=True):
    spec: dict[str, Any]
    num_steps: int = 0  # 0: it ends when the model is loaded
    num_tokens: int = 256  # of a step's batch
    loads_whole: bool = False  # as if the model's files could not be read tensor by tensor
    keeps_freed: bool = True  # as glibc does, else only what is in use counts


class _Loaded(Exception):
    """Ends a trial without steps."""


def main(model: Path, trial: Trial) -> None:
    if not trial.keeps_freed:
        freed_memory_keep_little()
    torch.ones(8).sum()  # what torch sets up at its first operation is not the model's
    spec = JobSpec.model_validate(trial.spec)
    row: dict[str, Any] = {"case": str(torch.distributed.get_rank()), "steps": [], "metrics": []}
    base = anonymous_bytes()
    changed = (
        patch.object(policy, "can_load_in_parts", return_value=False) if trial.loads_whole else nullcontext()
    )
    with PeakWatch() as watch, changed:

        def end_loading() -> None:
            row["loading"] = watch.peak_bytes() - base
            if not trial.num_steps:
                raise _Loaded

        try:
            with _before_optimizer(spec.train.zero_stage, end_loading):
                engine = TrainEngine(model, spec)
        except _Loaded:
            sys.stdout.write(json.dumps(row) + "\n")
            return
        row["engine"] = watch.peak_bytes() - base
        for number in range(1, trial.num_steps + 1):
            batch = _batch(number, trial.num_tokens)
            metrics = engine.step(batch, step_version=number - 1, optimizer_step=number)
            row["steps"].append(watch.peak_bytes() - base)
            row["metrics"].append([metrics[name] for name in METRICS])
    sys.stdout.write(json.dumps(row) + "\n")


def _batch(number: int, num_tokens: int) -> Batch:
    """Return equally long samples of random tokens, all of which but the first are trained."""
    rng = np.random.default_rng(number)
    length = num_tokens // NUM_SAMPLES
    starts = np.arange(NUM_SAMPLES + 1, dtype=np.int32) * length
    mask = (np.arange(starts[-1]) % length != 0).astype(np.uint8)
    advantages = np.repeat(rng.normal(size=NUM_SAMPLES), length) * mask
    header = BatchHeader(
        job_id=str(JOB),
        number=number,
        policy_version=number - 1,
        temperature=1.0,
        num_groups=1,
        reward_mean=0.5,
        reward_std=0.5,
    )
    return batch_of_arrays(
        header,
        sample_starts=starts,
        token_ids=rng.integers(0, 32_768, size=starts[-1]).astype(np.int32),
        loss_mask=mask,
        behaviour_logprobs=(mask * -10.0).astype(np.float32),
        sample_parents=np.full(NUM_SAMPLES, NO_PARENT, dtype=np.int32),
        advantages_positive=np.maximum(advantages, 0).astype(np.float32),
        advantages_negative=np.minimum(advantages, 0).astype(np.float32),
        loss_weights=mask.astype(np.float32),
        versions=np.where(mask != 0, number - 1, -1).astype(np.int32),
        rewards=rng.random(NUM_SAMPLES).astype(np.float32),
        sessions=np.arange(NUM_SAMPLES, dtype=np.int32),
        groups=np.zeros(NUM_SAMPLES, dtype=np.int32),
    )


@contextmanager
def _before_optimizer(zero_stage: int, call: Callable[[], None]) -> Iterator[None]:
    """Call back when the policy's weights are loaded and, under ZeRO-3, partitioned, and its optimizer is not made."""
    owner, name = (
        (DeepSpeedZeroOptimizer_Stage3, "_create_fp16_partitions_with_defragmentation")
        if zero_stage == PARTITIONED_WEIGHTS
        else (deepspeed, "initialize")
    )
    make = getattr(owner, name)

    def call_and_make(*arguments: Any, **options: Any) -> Any:
        call()
        return make(*arguments, **options)

    with patch.object(owner, name, call_and_make):
        yield


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Trial))
