"""Runs the ranks of a trainer on a random model, and returns what each of them measured."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.fixtures.trainer_harness import child_environment, make_spec, run_check

NUM_RANKS = 2
GIB = 2**30
WHOLE = "the whole model"  # its weights in the job's number format


def model_write(folder: Path, num_layers: int, width: int) -> None:
    """Write a random model in bfloat16 (`random_model.py`)."""
    command = [sys.executable, "-m", "tests.benchmarks.scale_out.random_model", folder, num_layers, width]
    subprocess.run([str(part) for part in command], check=True, env=child_environment())


def ranks_run(
    model: Path,
    train: dict[str, Any],
    *,
    num_ranks: int = NUM_RANKS,
    dtype: str = "bfloat16",
    kl_coef: float = 0.0,
    **trial: Any,
) -> list[dict[str, Any]]:
    """Return what each rank printed (`rank.py`), and the bytes of the whole model in the job's number format.

    `trial` are further fields of its `Trial`.
    """
    spec = {
        **make_spec(**{"micro_batch_tokens": 2048, "learning_rate": 1e-5, **train}),
        "model": {"source": "artifact://random", "dtype": dtype},
        "algorithm": {"kl_coef": kl_coef},
    }
    encoded = msgspec.json.encode({"spec": spec, **trial}).decode()
    rows = run_check(["tests.benchmarks.scale_out.rank", str(model), encoded], num_ranks=num_ranks)
    stored = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    whole = stored * (2 if dtype == "float32" else 1)
    return [{**rows[str(rank)], "whole": whole} for rank in range(num_ranks)]
