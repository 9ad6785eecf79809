"""The job of the benchmark: sums as a chat model is asked for them, and GRPO on an adapter.

Takes the model's folder and sizes; returns task files and a spec as a user would write it. No task is in both files.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from seamlessflow.core.job_spec import Dtype

ADDENDS = range(1, 13)
# The model answers most questions in whole sentences, so a sentence is what is asked for and graded.
SENTENCE = "The sum of {left} and {right} is"
QUESTION = f"Complete this sentence: {SENTENCE}"
ANSWER = f"{SENTENCE} {{total}}."
MAX_MODEL_LEN = 80  # of the 8192 that the model has: a prompt of 45 tokens, and an answer
MAX_ANSWER_TOKENS = 24
TEMPERATURE = 0.6  # at 1, so small a model, quantized, says nothing that makes sense
SEED = 0


@dataclass(frozen=True, slots=True)
class Size:
    num_updates: int
    num_held_out: int
    groups_per_batch: int
    group_size: int


@dataclass(frozen=True, slots=True)
class TaskFiles:
    training: Path
    held_out: Path


def tasks_write(folder: Path, *, num_held_out: int) -> TaskFiles:
    """Write all sums of two addends, in an order that SEED gives, as two files."""
    pairs = list(itertools.product(ADDENDS, ADDENDS))
    random.Random(SEED).shuffle(pairs)
    files = TaskFiles(folder / "sums.jsonl", folder / "sums-held-out.jsonl")
    _write(files.held_out, pairs[:num_held_out])
    _write(files.training, pairs[num_held_out:])
    return files


def _write(file: Path, pairs: Sequence[tuple[int, int]]) -> None:
    tasks = (
        {
            "question": QUESTION.format(left=left, right=right),
            "answer": ANSWER.format(left=left, right=right, total=left + right),
        }
        for left, right in pairs
    )
    file.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))


def job_spec(model: Path, tasks: TaskFiles, size: Size) -> dict[str, Any]:
    return {
        "name": "a real model",
        "model": {"source": str(model), "max_model_len": MAX_MODEL_LEN, "dtype": Dtype.FLOAT32.value},
        "environment": {"name": "arithmetic", "tasks": str(tasks.training), "max_turns": 1},
        "rollout": {
            "engine": "embedded",
            "group_size": size.group_size,
            "groups_per_batch": size.groups_per_batch,
            "max_tokens_per_turn": MAX_ANSWER_TOKENS,
            "temperature": TEMPERATURE,
            "max_num_seqs": size.num_held_out
            // 2,  # two engines, which begin with all held-out tasks at once
        },
        # On policy, so that every token that is trained was sampled by the weights that the step begins with.
        "algorithm": {"name": "grpo", "kl_coef": 0.0, "max_staleness": 0},
        "train": {
            "num_updates": size.num_updates,
            "learning_rate": 2e-4,
            "lora": {"rank": 16, "alpha": 32},
            "micro_batch_tokens": 256,  # about one group, which bounds the memory of activations
            "checkpoint_every_updates": 10,
        },
        "evaluation": {
            "tasks": str(tasks.held_out),
            "every_versions": size.num_updates,
            "samples_per_task": 1,
            "temperature": 0,
            "max_concurrent_sessions": size.num_held_out,
        },
        "seed": SEED,
    }
