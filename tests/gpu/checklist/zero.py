"""A model of 1.7 billion parameters trains, leaves the card and comes back, at ZeRO 1 and 3: the same to the bit.

Each stage is a process of its own (`zero_stage.py`), because a process group cannot be replaced.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.gpu.checklist.checking import Figures, item_main, stopwatch
from tests.gpu.checklist.models import qwen3_write

STAGES = (1, 3)
STATE_BYTES = 12  # of a parameter: its float32 copy and AdamW's two moments; the weights come on top
MAX_LEFT = 0.1  # of the bytes that were freed, still allocated on the card
MAX_DIFFERENCE = 0.02  # of the stages' entropies and gradient norms, in bfloat16


def check(device: str, sizes: list[str], figures: Figures) -> None:
    num_layers, width, vocabulary = map(int, sizes)
    with TemporaryDirectory() as folder:
        with stopwatch() as watched:
            model = qwen3_write(
                Path(folder) / "model", num_layers=num_layers, width=width, vocabulary=vocabulary
            )
        figures.note("model", seconds=watched(), bytes=sum(file.stat().st_size for file in model.iterdir()))
        rows = [_stage(model, stage, figures) for stage in STAGES]
    for row in rows:
        assert row["is_equal"], f"states that came back differ: {row}"
        assert row["freed_bytes"] >= STATE_BYTES * row["num_parameters"], row
        if device == "cuda":
            assert row["left_bytes"] <= MAX_LEFT * row["freed_bytes"], row
    for name in ("entropy", "grad_norm"):
        first, second = (row[name] for row in rows)
        assert abs(first - second) <= MAX_DIFFERENCE * first, (name, first, second)


def _stage(model: Path, stage: int, figures: Figures) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.checklist.zero_stage", str(model), str(stage)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, f"ZeRO {stage} ended with status {done.returncode}"
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    figures.note(f"ZeRO {stage}", **row)
    return row


if __name__ == "__main__":
    item_main(check)
