"""Anonymous bytes of each rank in a training step, by ZeRO stage and the options that save memory.

The model has 0.3 billion random parameters and is trained in float32: a step on a processor in bfloat16 takes several
times as long. A step trains four answers of 64 tokens. The figure is the peak of the second step, when AdamW has all
of its state; the baseline is the size of the whole model, of which ZeRO 0 needs four times as much for weights,
gradients and AdamW's moments. Under ZeRO 3 each of two ranks needs 2.5 times as much for its halves of those and of
DeepSpeed's float32 copy of the weights, and up to 0.9 times as much for what is gathered and reduced at a time, of
which the sizes are fixed (`step/deepspeed_config.py`): next to a large model they are small. That is the goal for the
memory in use; the other rows contain what glibc keeps of what was freed. Offloading to the host saves nothing on a
processor, whose memory is the host's.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.benchmarks.scale_out.ranks import GIB, WHOLE, model_write, ranks_run

SMALL = (22, 1024)  # layers, width: 0.3 billion parameters
SIDES: Mapping[str, dict[str, Any]] = {
    "ZeRO 0, one rank": {"train": {"zero_stage": 0}, "num_ranks": 1},
    "ZeRO 3": {"train": {"zero_stage": 3}},
    "ZeRO 3, in use": {"train": {"zero_stage": 3}, "keeps_freed": False},
    "ZeRO 3, gradient checkpoints": {"train": {"zero_stage": 3, "gradient_checkpointing": True}},
    "ZeRO 3, gradient checkpoints, in use": {
        "train": {"zero_stage": 3, "gradient_checkpointing": True},
        "keeps_freed": False,
    },
}
A_STEP = "a step"
GOAL = Goal(
    4.0, Bound.AT_MOST, Quantity.RATIO
)  # in a step under ZeRO 3, with what the answers themselves need
MAX_DIFFERENCE = 1e-3  # of losses and gradient norms, relative to those of ZeRO 0


async def measure() -> list[Row]:
    rows: list[Row] = []
    metrics: list[list[list[float]]] = []
    with TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model_write(model, *SMALL)
        for name, side in SIDES.items():
            ranks = ranks_run(model, **side, dtype="float32", num_steps=2)
            metrics.append(ranks[0]["metrics"])
            rows += _rows(name, ranks)
    _check_same(metrics)
    return rows


def _rows(name: str, ranks: list[dict[str, Any]]) -> list[Row]:
    whole = Measured([ranks[0]["whole"] / GIB], min_repeats=1)
    peaks = {
        "making the engine": [rank["engine"] for rank in ranks],
        A_STEP: [rank["steps"][-1] for rank in ranks],
    }
    return [
        Row(
            f"{name}: peak of a rank in {doing}",
            "GiB",
            Measured([peak / GIB for peak in own], min_repeats=1),
            WHOLE,
            whole,
            None if SIDES[name].get("keeps_freed", True) or doing != A_STEP else GOAL,
        )
        for doing, own in peaks.items()
    ]


def _check_same(metrics: list[list[list[float]]]) -> None:
    """Check that all sides trained alike."""
    for own in metrics[1:]:
        for of_step, expected in zip(own, metrics[0], strict=True):
            for value, other in zip(of_step, expected, strict=True):
                assert abs(value - other) <= MAX_DIFFERENCE * abs(other), (metrics, "differ")
