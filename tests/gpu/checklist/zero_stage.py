"""Run as a script with a model folder and a ZeRO stage: a step, all states to the host and back, another step.

Prints one JSON line with times, bytes, and whether every state that came back has the checksum that it had before.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import UntypedStorage
from torch.nn.functional import pad

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group, training_device
from tests.fixtures.trainer_harness import make_spec
from tests.gpu.checklist.checking import stopwatch
from tests.gpu.trainer_check import batch_of, random_answers

PARTITIONED_WEIGHTS = 3  # ZeRO stage
WORD_BYTES = 8
BLOCK_WORDS = 1 << 22


def main(model: Path, stage: int) -> None:
    device = training_device()
    vocabulary: int = json.loads((model / "config.json").read_text())["vocab_size"]
    spec = JobSpec.model_validate(
        {
            **make_spec(
                zero_stage=stage,
                tree=False,
                gradient_checkpointing=True,
                learning_rate=1e-5,
                micro_batch_tokens=4096,
            ),
            "model": {"source": "artifact://random", "dtype": "bfloat16"},
        }
    )
    with stopwatch() as loaded:
        engine = TrainEngine(model, spec)
    with stopwatch() as stepped:
        first = _step(engine, 1, vocabulary)
    mover = engine._mover
    if stage == PARTITIONED_WEIGHTS:
        engine._engine.optimizer.empty_partition_cache()  # as the mover does first
    held = [storage for storage, holds in mover._storages() if holds]
    before = [_checksum(storage) for storage in held]
    with stopwatch() as went:
        freed = mover.take_away()
    left = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    with stopwatch() as came:
        mover.bring_back()
    is_equal = [_checksum(storage) for storage in held] == before
    second = _step(engine, 2, vocabulary)
    row: dict[str, Any] = {
        "stage": stage,
        "num_parameters": sum(
            getattr(parameter, "ds_numel", parameter.numel())
            for parameter in engine._engine.module.parameters()
        ),
        "entropy": first["train/entropy"],
        "grad_norm": first["train/grad_norm"],
        "grad_norm_after": second["train/grad_norm"],
        "load_s": loaded(),
        "step_s": stepped(),
        "offload_s": went(),
        "reload_s": came(),
        "num_states": len(held),
        "freed_bytes": freed,
        "left_bytes": left,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "is_equal": is_equal,
    }
    print(json.dumps(row), flush=True)


def _step(engine: TrainEngine, number: int, vocabulary: int) -> dict[str, float]:
    uniform = -float(np.log(vocabulary))  # near the random model's logprobs, so that no ratio is cut off
    answers = [
        replace(answer, logprobs=[uniform] * len(answer.token_ids))
        for answer in random_answers(np.random.default_rng(number))
    ]
    batch = batch_of(answers, number=number, version=number - 1)
    metrics = engine.step(batch, step_version=number - 1, optimizer_step=number)
    assert 0 < metrics["train/grad_norm"] < float("inf"), metrics
    return metrics


def _checksum(storage: UntypedStorage) -> int:
    """Return a sum of 8-byte words, weighted by position, computed on their device; a changed word always shows."""
    raw = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    missing = -len(raw) % WORD_BYTES
    words = (pad(raw, (0, missing)) if missing else raw).view(torch.int64)
    total = 0
    for first, block in enumerate(words.split(BLOCK_WORDS)):
        numbers = torch.arange(len(block), device=block.device) + first * BLOCK_WORDS
        total += int((block * (2 * numbers + 1)).sum())
    return total


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), int(sys.argv[2]))
